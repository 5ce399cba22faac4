"""The constants of the seed, settable in this one place (ruling C7).

Every participant of one operation should use the same `Timing`: it is part of the contract, like the files. So worker
processes get it in their environment, where a `Ledger` without a timing of its own looks for it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import msgspec

from holdfast.core.errors import InvalidArgumentError

MILLISECOND_US = 1_000
TIMING_VARIABLE = "HOLDFAST_OPERATION_TIMING"


@dataclass(frozen=True, slots=True)
class Timing:
    """How often to beat, when to give up on a silent participant, how long each cleanup phase lasts."""

    heartbeat_min_ms: int = 4_000
    heartbeat_max_ms: int = 5_000
    staleness_ms: int = 10_000
    self_cleanup_window_ms: int = 10_000
    deletion_delay_ms: int = 10_000
    lock_timeout_ms: int = 8_000
    result_poll_ms: int = 50
    stop_grace_ms: int = 5_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise InvalidArgumentError(f"{name} is {getattr(self, name)}; every timing constant must be > 0")
        if not self.heartbeat_min_ms <= self.heartbeat_max_ms < 2 * self.heartbeat_min_ms:
            raise InvalidArgumentError(
                f"heartbeat interval {self.heartbeat_min_ms}-{self.heartbeat_max_ms} ms: "
                "the maximum must be at least the minimum and less than twice as long"
            )
        if self.staleness_ms < 2 * self.heartbeat_max_ms:
            raise InvalidArgumentError(
                f"staleness_ms is {self.staleness_ms}: a live participant could be taken for dead; "
                f"use at least two heartbeats ({2 * self.heartbeat_max_ms})"
            )

    @classmethod
    def parse(cls, text: str | None) -> Timing:
        """From the environment: a JSON object of what differs from the seed's constants; nothing means those."""
        if not text:
            return cls()
        try:
            return cls(**msgspec.json.decode(text, type=dict[str, int]))
        except (msgspec.DecodeError, TypeError) as error:
            raise InvalidArgumentError(
                f"{TIMING_VARIABLE} is {text[:100]!r}, which is no timing: {error}; "
                'give JSON such as {"heartbeat_min_ms": 4000}, or leave it out'
            ) from None

    def render(self) -> str:
        """What `parse` reads."""
        return msgspec.json.encode(asdict(self)).decode()

    @classmethod
    def fast(cls) -> Timing:
        """A set for tests with real processes: a whole crash is cleaned up in about three seconds."""
        return cls(
            heartbeat_min_ms=100,
            heartbeat_max_ms=125,
            staleness_ms=2_000,
            self_cleanup_window_ms=400,
            deletion_delay_ms=300,
            lock_timeout_ms=4_000,
            result_poll_ms=10,
            stop_grace_ms=1_000,
        )

    @property
    def quiet_ms(self) -> int:
        """How long a heartbeat must be *seen* unchanged before an old timestamp counts as death.

        More than one longest interval, so that a participant whose clock is behind but which still beats
        is alive; less than two shortest ones, so that the detection bound of 15 s holds (ruling C9).
        """
        return min(self.heartbeat_max_ms + self.heartbeat_min_ms // 2, 2 * self.heartbeat_min_ms)
