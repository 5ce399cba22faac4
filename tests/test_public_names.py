"""What users import. A name that comes or goes is a decision: it changes this list, and the changelog."""

from __future__ import annotations

import importlib.resources
import inspect
import pickle
import subprocess
import sys
from typing import get_type_hints

import pytest

import holdfast
from holdfast.core import errors
from holdfast.core.error_record import ErrorRecord
from holdfast.engine.settings import WorkerOptions, WorkerSettings
from holdfast.models.options import Options, StartOptions
from holdfast.models.schedule import ScheduleSettings, make_spec

APP = ["App", "Collision", "Handle", "HoldfastError", "PromiseId", "RetryPolicy", "Status", "Unique", "resource"]
MACHINES = [
    "Await",
    "Child",
    "ChildResult",
    "Done",
    "Machine",
    "MachineContext",
    "Next",
    "Outcome",
    "ReceivedSignal",
    "Replay",
    "ScheduleChildren",
    "Stop",
    "step",
]
WORKFLOWS = [
    "Cancelled",
    "Completed",
    "Context",
    "DeterminismWarning",
    "Evicted",
    "HttpResponse",
    "JoinSet",
    "Promise",
    "Task",
    "TaskCancelled",
    "TaskFailed",
    "TaskTimedOut",
    "Uncertain",
    "Workflow",
    "current",
]
FLOWS = ["Activity", "ErrorRecord", "Flow", "FlowJob"]
BATCHES = ["Batch", "Skip"]
OPERATIONS = ["Ledger"]  # the rest of them: holdfast.operation


def test_the_public_names_are_these() -> None:
    assert sorted(holdfast.__all__) == sorted(APP + MACHINES + WORKFLOWS + FLOWS + BATCHES + OPERATIONS)


def test_every_public_name_is_there_and_listed_in_order() -> None:
    assert holdfast.__all__ == sorted(holdfast.__all__)
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None


@pytest.mark.parametrize("name", [name for name in APP + MACHINES if inspect.isclass(getattr(holdfast, name))])
def test_every_public_class_says_what_it_is(name: str) -> None:
    documented = getattr(holdfast, name).__doc__
    assert documented
    assert not documented.startswith(f"{name}("), "a dataclass without a docstring gets its signature as one"


def test_star_import_brings_nothing_else() -> None:
    names: dict[str, object] = {}
    exec("from holdfast import *", names)
    assert set(names) - {"__builtins__"} == set(holdfast.__all__)


def test_the_package_says_that_it_is_typed() -> None:
    assert importlib.resources.files("holdfast").joinpath("py.typed").is_file()


def test_importing_it_opens_nothing_and_needs_no_driver() -> None:
    """PostgreSQL's driver is an extra: it is imported with the first URL that asks for it."""
    program = "import sys, holdfast; holdfast.App('a', store='never.db'); sys.exit('asyncpg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_keywords_that_type_checkers_see_are_those_that_there_are() -> None:
    assert get_type_hints(StartOptions) == get_type_hints(Options)
    settings = get_type_hints(WorkerSettings)
    assert get_type_hints(WorkerOptions) | {name: settings[name] for name in ("queues", "concurrency")} == settings
    assert get_type_hints(ScheduleSettings).keys() == inspect.signature(make_spec).parameters.keys() - {
        "cron",
        "definition",
    }


@pytest.mark.parametrize(
    ("missing", "use", "says"),
    [
        ("opentelemetry", "telemetry.instrument(app)", "ConfigurationError: traces need OpenTelemetry: pip install"),
        ("starlette", "import holdfast.web.server", "ModuleNotFoundError: serving needs starlette: pip install"),
    ],
)
def test_a_missing_extra_is_named(missing: str, use: str, says: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None\nfrom holdfast import App, telemetry\napp = App('a')\n{use}"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert says in ran.stderr.splitlines()[-1]


ERRORS = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception) and cls.__doc__]


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_every_error_has_one_root(cls: type[Exception]) -> None:
    assert issubclass(cls, errors.HoldfastError)


@pytest.mark.parametrize("cls", [cls for cls in ERRORS if cls.__init__ is Exception.__init__], ids=lambda c: c.__name__)
def test_errors_survive_pickling(cls: type[Exception]) -> None:
    """They cross process boundaries with their message."""
    copied = pickle.loads(pickle.dumps(cls("what happened, to which id, what to do")))
    assert type(copied) is cls
    assert str(copied) == "what happened, to which id, what to do"


@pytest.mark.parametrize(
    "cls", [cls for cls in ERRORS if issubclass(cls, errors.TaskFailed | errors.ExecutionEndedError)]
)
def test_errors_survive_pickling_with_their_record(cls: type[errors.TaskFailed]) -> None:
    record = ErrorRecord(type="ValueError", message="no")
    copied = pickle.loads(pickle.dumps(cls("charge failed", record)))
    assert (type(copied), str(copied), copied.record) == (cls, "charge failed", record)
