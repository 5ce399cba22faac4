"""Any program as a participant: heartbeats while it runs, SIGTERM on cleanup, its exit code recorded.

What `holdfast ops exec` does. The program finds the ledger and the operation in its environment, so that a
shell script can start further participants.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence

from .errors import OperationFailedError, WorkerFailedError
from .ledger import Ledger
from .operation import Operation
from .workers import Child, stop_process, worker_environment

EXIT_OPERATION_FAILED = 75  # EX_TEMPFAIL: the operation failed under the program; try again in a new one
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1


async def run_program(
    ledger: Ledger,
    operation_id: str | None,
    command: Sequence[str],
    *,
    create: bool = False,
    fail_on_crash: bool = True,
    description: str | None = None,
) -> int:
    """Run `command` to its end as one call; the exit code to pass on.

    With `create` this participant is the initiator: the operation completes with the program's success and is
    aborted with its failure.
    """
    title = description or " ".join(command)
    if create:
        operation = await ledger.create_operation(operation_id=operation_id, description=title)
    else:
        assert operation_id is not None
        operation = await ledger.join_operation(operation_id)
    try:
        code = await _run_call(operation, command, title, fail_on_crash)
    except OperationFailedError as error:
        print(error, file=sys.stderr)
        return EXIT_OPERATION_FAILED
    except WorkerFailedError as error:
        await operation.__aexit__(type(error), error, None)  # abort or leave: nobody is left hanging
        raise
    if not create:
        await operation.leave()
    elif code == 0:
        await operation.complete()
    else:
        await operation.abort(f"{command[0]} exited with code {code}")
    return code


async def _run_call(operation: Operation, command: Sequence[str], title: str, fail_on_crash: bool) -> int:
    call = await operation.start_call(description=title, fail_on_crash=fail_on_crash)
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=worker_environment(operation.part, None), preexec_fn=_die_with_parent()
        )
    except OSError as error:
        await call.fail(error)
        raise WorkerFailedError(f"{command[0]} could not be started: {error}", 127) from error
    _forward_signals(process)
    exited = asyncio.ensure_future(process.wait())
    failed = asyncio.ensure_future(operation.wait_failed())
    await asyncio.wait({exited, failed}, return_when=asyncio.FIRST_COMPLETED)
    if not exited.done():
        await stop_process(operation.part, process)
        await operation.wait_cleaned_up()
        raise OperationFailedError(failed.result())
    failed.cancel()
    code = exited.result()
    if code == 0:
        await call.end(0)
    else:
        await call.fail(f"exit code {code}" if code > 0 else f"killed by signal {-code}")
    return code if code >= 0 else 128 - code


def _forward_signals(process: asyncio.subprocess.Process) -> None:
    loop = asyncio.get_running_loop()
    for number in _FORWARDED:
        loop.add_signal_handler(number, Child(process).signal_if_alive, number)


def _die_with_parent() -> Callable[[], None] | None:
    """On Linux the program dies with this process: killed, it must not go on without a heartbeat."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up before the fork, where little is allowed
    parent = os.getpid()

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died in between
            os.kill(os.getpid(), signal.SIGTERM)

    return set_death_signal
