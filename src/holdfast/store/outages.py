"""What was given to this process and is taken away: an outage like any other, where the first refusal is a mistake."""

from __future__ import annotations

from types import TracebackType

from holdfast.core.errors import ConfigurationError, StoreUnavailableError


class GivenBackLater:
    """What this process could do before, and is refused, was taken away: by a changed password, a revoked grant, a
    schema that is being restored, a file system that is read-only now. That is mended in its place, and nothing here is
    at fault meanwhile.

    A class, not a generator: it is entered with every commit.
    """

    __slots__ = ("_was_given",)

    def __init__(self, was_given: bool) -> None:
        self._was_given = was_given

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._was_given and isinstance(error, ConfigurationError):
            raise StoreUnavailableError(str(error)) from error
