"""Every error a program may want to catch: `from holdfast.errors import ExecutionFailedError`."""

from holdfast.core.errors import *  # noqa: F403
