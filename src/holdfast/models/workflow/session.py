"""One workflow in this worker's memory: its journal, its body, and the answers the body has still to hear.

The session is pure in the sense that counts: it appends events and drives the body, but starts nothing and waits
for nothing. The runner does that, between two calls of `drive`.

Replay: the body runs from its beginning; what the journal has answered it gets at once (`operations`). A body that
asks for something else than its journal holds is stopped before anything is recorded.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

from holdfast.core.errors import ForeignAwaitError
from holdfast.core.journal import Operation, quick
from holdfast.core.journal.events import (
    ExecutionCancelled,
    ExecutionFailed,
    Failure,
)
from holdfast.core.journal.stamp import Stamp
from holdfast.models.workflow.control_flow import CURRENT, Cancelled, Diverged, Evicted
from holdfast.models.workflow.divergence import explain_asyncio, foreign_await
from holdfast.models.workflow.hidden_loop import hide, look_outside, show
from holdfast.models.workflow.open_call import OpenCall, Settled
from holdfast.models.workflow.operations import RUNNING, Operations, awaiting
from holdfast.models.workflow.past import BLOCKED, Asked
from holdfast.models.workflow.promise import Wait
from holdfast.store.effects import AppendJournal

CLOSE_TRIES: Final = 10

log = logging.getLogger("holdfast.workflow")


class Session(Operations):
    """Drives the body."""

    __slots__ = ()

    @property
    def can_resume(self) -> bool:
        """Whether `drive` would get anywhere."""
        wait = self.wait
        if wait is None or self.awaits_cancel():
            return True
        if wait.kind == "Single":
            return wait.waiting_on[0] in self.settled
        if self.journal.status is BLOCKED:
            return self.journal.is_wait_satisfied
        return self._settled_before(wait.kind, wait.waiting_on, None, wait.join_set_id)

    # ------------------------------------------------------------------ driving the body

    def drive(self) -> None:
        """Run the body until it is blocked or has finished. Raises `NonDeterminismError` if it diverged."""
        journal = self.journal
        while not self.is_finished:
            if journal.status is BLOCKED:
                self.resume()
            wait = self._send()
            if wait is None or self.divergence is not None:
                break
            if self._stands_at(wait):
                return
        if self.divergence is not None:
            raise self.divergence

    def turn(
        self, call: OpenCall, begun: Stamp, raw: bytes, value: Any, is_alone: Callable[[], bool]
    ) -> AppendJournal | None:
        """`drive`, with what the call returned that the body waits for, begun at a time.

        If all that the body does is to call and await the next plain task, the end of the one call and the begin of
        the other are told together: all that is to be committed, if it `is_alone`. `call` is the other call from then
        on. Else None, and what happened is pending.
        """
        self.answered = call, begun, raw, value
        wait = self._send()
        if self.answered is not None:
            asked = self.asked
            if wait is not None and asked is not None and is_alone():
                step = self._step(call, begun, raw, asked, wait)
                if step is not None:
                    return step
            self.write_up()
        if self.divergence is not None:
            raise self.divergence
        if wait is not None and not self._stands_at(wait):
            self.drive()
        return None

    def _step(self, call: OpenCall, begun: Stamp, raw: bytes, asked: Asked, wait: Wait) -> AppendJournal | None:
        """`write_up` and `_stands_at` in one piece, as a commit."""
        task, text, arguments, mark = asked
        promise_id, journal = call.promise_id, self.journal
        first, length = journal.pending_first, journal.length
        body = quick.step(journal, begun, self.stamp, promise_id, raw, task.call_text, text, mark, wait)
        if body is None:
            return None
        self.answered = self.asked = None
        self.decided = False
        self.wait = wait
        self.journal_bytes += len(body)
        del self.open_calls[promise_id]
        if call.started:
            self.settled[promise_id] = Settled(length, raw)
            call.attempt, call.started, call.first_started_us = 0, False, 0
        else:
            self.settled[promise_id] = Settled(length + 1, raw)
        (call.promise_id,) = wait.waiting_on
        self.open_calls[call.promise_id] = call
        call.input, call.arguments = text, arguments
        if call.callee is not task:
            call.callee, call.function_name = task, task.name
        return AppendJournal(first, journal.length - first, body)

    def _stands_at(self, wait: Wait) -> bool:
        """Record what the body waits for; whether it has to."""
        self.wait = wait
        if self.caught_up and self.journal.status is RUNNING and not wait.signals:
            quick.wait(self.journal, self.stamp, wait)
            if wait.kind == "Single" and self.cancel_sequence is None:
                return True  # it was asked for because it is not settled
        else:
            self._block(wait)
        return not self.can_resume

    def resume(self) -> None:
        """Record that the wait is over, if the body stands at it and it is."""
        journal = self.journal
        if self.wait is not None and journal.status is BLOCKED and journal.is_wait_satisfied:
            quick.resume(journal, self.stamp)

    def _send(self) -> Wait | None:
        """One `send`, with the loop hidden: asyncio's own tools would act on the engine's task."""
        body = self.body
        assert body is not None
        outside = self.outside
        if outside is None:
            outside = self.outside = look_outside()
        CURRENT.session = self
        hidden = hide(outside)
        try:
            if self.cancel_sequence is not None and self._must_throw_cancel():
                self.note_cancel_raised()
                wait = body.throw(Cancelled(self.cancel_reason))
            else:
                self.wait = None
                wait = body.send(None)
        except StopIteration as stop:
            self._finish(stop.value, None)
            return None
        except Diverged:
            return None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # `sys.exit()`, or a CancelledError of the body's own, is a failure like any
            self._finish(None, explain_asyncio(error))
            return None
        finally:
            show(outside, hidden)
            CURRENT.session = None
        if type(wait) is not Wait:
            foreign = foreign_await(body, wait)
            if self.answered is not None:
                self.write_up()  # or its clean-up could make the call that is told with it
            self.evict()
            self._finish(None, foreign)
            return None
        return wait

    def _must_throw_cancel(self) -> bool:
        waiting = self.wait
        if waiting is None or not self.awaits_cancel():
            return False
        return not self._settled_before(waiting.kind, waiting.waiting_on, self.cancel_sequence, waiting.join_set_id)

    def _block(self, wait: Wait) -> None:
        journal = self.journal
        if self.next < self.replay_until or self.taken or self.owners:
            self._stop_short(wait)
        if journal.status is RUNNING:
            quick.wait(journal, self.stamp, wait)
            if wait.signals:
                self.receive_wanted()
        elif journal.status is BLOCKED:
            if not self.is_blocked_on(wait.kind, wait.waiting_on, wait.join_set_id):
                self._stop_short(wait)
        else:  # B2: while Cancelling, clean-up may suspend, but no Awaiting and no Resumed is recorded
            self.receive_wanted()

    def _stop_short(self, wait: Wait) -> None:
        try:
            self._diverge(awaiting(wait), self._skipped())
        except Diverged:
            assert self.divergence is not None
            raise self.divergence from None

    def _finish(self, value: Any, error: BaseException | None) -> None:
        if self.divergence is not None:
            return
        if self.answered is not None:
            self.write_up()
        skipped = self._skipped()
        if skipped is not None and not isinstance(error, ForeignAwaitError):
            raised = None if error is None else Operation("", f"raise {type(error).__name__}: {error}", "", "")
            with contextlib.suppress(Diverged):
                self._diverge(raised, skipped)
            return
        self.is_finished = True
        self.wait = self.body = None
        self.result, self.failure = value, error

    # ------------------------------------------------------------------ the end

    def conclude(self, result: str | None, failure: Failure | None) -> None:
        """The terminal event: completed, cancelled (the cancel went through the body), or failed."""
        if result is not None:
            quick.finish(self.journal, self.stamp, result)
        elif failure is None:
            self.append(ExecutionCancelled(reason=self.cancel_reason, **self._event()))
        else:
            self.append(ExecutionFailed(error=failure, **self._event()))

    def evict(self) -> None:
        """Drop the body. Its `finally` blocks run; every durable call in them raises `Evicted` (ruling B16)."""
        body, self.body = self.body, None
        if body is None or self.is_finished:
            return
        self.is_evicting, self.caught_up = True, False
        earlier, CURRENT.session = CURRENT.session, self
        outside = look_outside()  # a body of another run may be at work here, or no loop at all
        try:
            for _ in range(CLOSE_TRIES):  # a body that swallows its end and awaits again is told once more
                hidden = hide(outside)
                try:
                    try:
                        body.close()
                    finally:
                        show(outside, hidden)
                    break
                except RuntimeError:
                    continue
                except Evicted:
                    break
                except Exception:
                    log.warning(
                        "clean-up code of %s raised while it was dropped from memory; nothing is lost",
                        self.journal.execution_id[:8],
                        exc_info=True,
                    )
                    break
        finally:
            CURRENT.session = earlier
