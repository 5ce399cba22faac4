"""Operations: `from holdfast.operation import Ledger`; also `python -m holdfast.operation exec ...`.

The public names of `holdfast.models.operation`, and the command line of operations without the rest.
"""

from __future__ import annotations

import importlib
import sys

from holdfast.models.operation import *  # noqa: F403
from holdfast.models.operation import __all__ as __all__


def main() -> None:
    """`python -m holdfast.operation list|show|watch|abort|exec`."""
    # By name, because the command line lies above this module and a library import must not need it.
    ops = importlib.import_module("holdfast.cli.ops").ops
    sys.exit(importlib.import_module("holdfast.cli.main").run(command=ops, program="python -m holdfast.operation"))


if __name__ == "__main__":
    main()
