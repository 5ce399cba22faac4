"""The machines an app knows, by name and version."""

from __future__ import annotations

from holdfast.core.errors import ConfigurationError, DefinitionError
from holdfast.models.machine.definition import MachineDefinition


class MachineRegistry:
    """Versions stand side by side: an execution finishes on the version it was started with."""

    def __init__(self) -> None:
        self.by_handler: dict[int, MachineDefinition] = {}
        self._by_name: dict[str, dict[int, MachineDefinition]] = {}

    def add(self, definition: MachineDefinition) -> None:
        versions = self._by_name.setdefault(definition.name, {})
        if definition.version in versions:
            raise DefinitionError(
                f"{definition.name} version {definition.version} is declared twice "
                f"({versions[definition.version].cls.__qualname__} and {definition.cls.__qualname__}); "
                "give one of them another name or version"
            )
        versions[definition.version] = definition
        self.by_handler[definition.handler] = definition

    def find(self, name: str, version: int | None = None) -> MachineDefinition:
        """The version asked for, or the newest."""
        versions = self._by_name.get(name)
        if not versions:
            known = ", ".join(sorted(self._by_name)) or "none"
            raise ConfigurationError(f"there is no machine {name!r} here; known are: {known}")
        chosen = max(versions) if version is None else version
        if chosen not in versions:
            raise ConfigurationError(
                f"there is no version {version} of {name}; there are {', '.join(map(str, sorted(versions)))}"
            )
        return versions[chosen]

    def queues(self) -> set[str]:
        """The default queues of everything here."""
        return {definition.queue for definition in self.by_handler.values()}
