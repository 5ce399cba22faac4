"""Commits of every outcome, with texts of any shape and length: together they do what each does alone (ruling E1)."""

from __future__ import annotations

from holdfast.core.status import Status
from holdfast.store.effects import AdvanceExecution, Commit
from holdfast.store.values import ExecutionClaim, ExecutionView
from holdfast.testing.hand import Hand, done, fail, go, keep, park, replay, row

ODD_TEXTS = (
    '{"a": "\\u0000 \\ud83d\\ude00 \\"quoted\\" \\\\ ü😀"}',
    "[]",
    f'"{"long ü" * 10_000}"',
    f'"{"long x" * 10_000}"',
    "null",
    "5.00",
)
OUTCOMES = 11


def facts(view: ExecutionView) -> tuple[object, ...]:
    return (
        *(view.status, view.step, view.state, view.result, view.error, view.attempt, view.crashes, view.revision),
        *(view.locked_by, view.awaits, view.digest, view.ended_at, view.eligible_at, view.wake_at),
    )


def outcome_of(number: int, claim: ExecutionClaim) -> AdvanceExecution:
    """Every way in which a row is written, each with several texts."""
    text = ODD_TEXTS[number // OUTCOMES % len(ODD_TEXTS)]
    outcomes = (
        *(go("other", text), go("other", text, delay=5.0), go("other")),
        *(keep("other", text), replay(claim, 2.0, text), park("name", wake_after=3.0)),
        *(done(text), fail(text), AdvanceExecution(status=Status.CANCELLED, state=text, result=text)),
        *(AdvanceExecution(status=Status.EXECUTING, state=state, digest="d2", attempt=2) for state in (text, None)),
    )
    return outcomes[number % OUTCOMES]


async def test_every_outcome_does_together_what_it_does_alone(hand: Hand) -> None:
    many = OUTCOMES * len(ODD_TEXTS) * 2
    await hand.insert(*(row(f"{number:03}") for number in range(2 * many)))
    claims = await hand.pick(2 * many)
    for number, claim in enumerate(claims[:many]):
        assert (await hand.commit(claim, outcome_of(number, claim))).applied
    commits = [Commit(claim, (outcome_of(number, claim),)) for number, claim in enumerate(claims[many:])]
    assert all(receipt.applied for receipt in (await hand.flush(*commits)).receipts)
    for number, (alone, together) in enumerate(zip(claims[:many], claims[many:], strict=True)):
        one, other = await hand.view(alone), await hand.view(together)
        assert facts(one) == facts(other)
        wanted = outcome_of(number, together)
        assert wanted.state is None or other.state == wanted.state
        assert other.result == wanted.result
