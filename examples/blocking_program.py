"""A program without an event loop: `app.sync` has the same calls, blocking.

The worker runs elsewhere, usually as `holdfast worker blocking_program:app`; here it is a process that this program
starts, to be complete.

It prints:

    started Greeting
    it says: hello, world
    status: done
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from holdfast import App, Await, Done, Machine, MachineContext, Outcome, step

app = App("greetings")


@dataclass
class Name:
    name: str


@app.machine
class Greeting(Machine[Name]):
    @step(initial=True)
    def wait(self, ctx: MachineContext[Name]) -> Outcome:  # a plain `def` runs in a thread
        return Await("speak", self.speak, ctx.state)

    @step
    def speak(self, ctx: MachineContext[Name]) -> Outcome:
        return Done(f"{ctx.awaited[0].payload}, {ctx.state.name}")


def main() -> None:
    command = [sys.executable, "-m", "holdfast.cli", "worker", f"{Path(__file__).stem}:app"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    worker = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        handle = app.sync.start(Greeting, Name("world"))
        print("started", handle.label.partition("/")[0])
        handle.signal("speak", "hello")
        print("it says:", handle.result(timeout=60))
        print("status:", handle.status())
    finally:
        app.sync.close()
        worker.send_signal(signal.SIGTERM)
        worker.wait()


if __name__ == "__main__":
    main()
