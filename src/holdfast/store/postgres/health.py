"""How a server is: its version, the settings that the promises lean on, vacuum, connections, indexes."""

from __future__ import annotations

import re
from typing import Any, Final

from holdfast.store.health import Check, Level, SchemaState, missing_check, size_text, times_check
from holdfast.store.postgres.connections import connect, end, errors_of
from holdfast.store.postgres.ledger import Ledger
from holdfast.store.postgres.migrate import ENCODING, PACKAGE, ROUTINES, SERVER_MIN, found_version
from holdfast.store.sql import load_text, migrations

_IDLE_SECONDS: Final = 300.0
_OPEN_SECONDS: Final = 3600.0
_DEAD_ROWS: Final = 50_000
_BUSY_SHARE: Final = 0.9


class Health(Ledger):
    async def schema_state(self) -> SchemaState:
        known = migrations(PACKAGE)[-1].version
        with errors_of(self._address, "look for the ledger"):
            connection = await connect(self._address)
            try:
                found = await found_version(connection, self._schema)
            finally:
                await end(connection)
        return SchemaState(None if found is None else found[0], known)

    async def examine(self) -> list[Check]:
        async with self._connections.any("examine the server") as connection:
            facts = await connection.fetchrow(self._sql["health_facts"])
            vacuum = await connection.fetchrow(self._sql["health_vacuum"], self._schema)
            indexes = await connection.fetch(self._sql["health_indexes"], self._schema)
            version = await connection.fetchrow(self._sql["health_version"])
            missing = await connection.fetchval(self._sql["health_rights"], self._schema)
            ahead_seconds: float = await connection.fetchval(self._sql["health_newest"])
        assert facts is not None, "settings answer one row"
        checks = [*_settings(facts), *_load(facts), _pooling(self._address.pooled, self._listens), _rights(missing)]
        checks.append(times_check(ahead_seconds))
        if vacuum is not None:
            checks.append(_vacuum(vacuum))
        if version is not None and version["routines"] != ROUTINES:
            advice = "another release is at work on this ledger too; finish the upgrade"
            found = f"those of release {version['routines']}, this one has {ROUTINES}"
            checks.append(Check(name="routines", level=Level.WARN, found=found, advice=advice))
        valid = {row["name"] for row in indexes if row["is_valid"]}
        text = load_text(PACKAGE, "schema.sql")
        wanted = re.findall(r"create (?:unique )?index (\w+)", text) + re.findall(r"constraint (\w+) unique", text)
        return [*checks, missing_check([name for name in wanted if name not in valid])]


def _setting(facts: Any, name: str, level: Level, advice: str, good: tuple[str, ...] = ("on",)) -> Check:
    found: str = facts[name]
    is_good = found in good
    return Check(name=name, level=Level.OK if is_good else level, found=found, advice=None if is_good else advice)


def _settings(facts: Any) -> list[Check]:
    is_old = facts["number"] < SERVER_MIN
    server = Check(
        name="PostgreSQL",
        level=Level.BAD if is_old else Level.OK,
        found=facts["version"],
        advice=f"Holdfast needs {SERVER_MIN // 10_000} or newer: upgrade the server" if is_old else None,
    )
    lost = "a commit that was acknowledged can be lost when the server crashes: turn it on"
    replica = Check(
        name="role",
        level=Level.BAD if facts["is_replica"] else Level.OK,
        found="replica" if facts["is_replica"] else "primary",
        advice="nothing can be written here: connect to the primary" if facts["is_replica"] else None,
    )
    return [
        server,
        replica,
        _setting(facts, "encoding", Level.BAD, "it cannot hold every text: move to a database in UTF8", (ENCODING,)),
        _setting(facts, "fsync", Level.BAD, lost),
        _setting(facts, "full_page_writes", Level.BAD, "a torn page cannot be repaired after a crash: turn it on"),
        _setting(facts, "synchronous_commit", Level.BAD, lost, ("on", "remote_write", "remote_apply", "local")),
        _setting(facts, "autovacuum", Level.BAD, "tables grow without bound: turn it on"),
    ]


def _load(facts: Any) -> list[Check]:
    level, advice = Level.OK, None
    if facts["connections"] > facts["max_connections"] * _BUSY_SHARE:
        level, advice = Level.WARN, "workers may soon be refused: raise max_connections, or put a pooler in between"
    found = f"{facts['connections']} of {facts['max_connections']}"
    checks = [Check(name="connections", level=level, found=found, advice=advice)]
    level, advice = Level.OK, None
    if facts["idle_seconds"] > _IDLE_SECONDS or facts["open_seconds"] > _OPEN_SECONDS:
        level = Level.WARN
        advice = (
            "it keeps vacuum from cleaning up, and each pick reads what has ended since: find it in pg_stat_activity "
            "or pg_prepared_xacts and end it"
        )
    found = (
        f"the oldest is open for {facts['open_seconds']:.0f} s, the oldest idle one for {facts['idle_seconds']:.0f} s"
    )
    checks.append(Check(name="transactions", level=level, found=found, advice=advice))
    return [*checks, Check(name="size", level=Level.OK, found=size_text(facts["size"]))]


def _pooling(pooled: bool, listens: bool) -> Check:
    if pooled and not listens:
        advice = "others' commits are found by polling: give `listen_url` a way past the pooler for quick wake-ups"
        return Check(name="pooling", level=Level.WARN, found="behind a pooler, without notifications", advice=advice)
    return Check(name="pooling", level=Level.OK, found="behind a pooler" if pooled else "direct")


def _rights(missing: list[str]) -> Check:
    if not missing:
        return Check(name="rights", level=Level.OK, found="may do what workers do")
    shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if missing[3:] else "")
    advice = "enough to look; a worker with this role waits for what it lacks: grant select, insert, update, delete"
    return Check(name="rights", level=Level.WARN, found=f"not all on {shown}", advice=advice)


def _vacuum(row: Any) -> Check:
    live, dead = row["live"], row["dead"]
    level, advice = Level.OK, None
    if dead > _DEAD_ROWS and dead > live:
        level, advice = Level.WARN, "autovacuum does not keep up: make it more eager on this table"
    return Check(name="vacuum", level=level, found=f"{dead} dead rows beside {live} live ones", advice=advice)
