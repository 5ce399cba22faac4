"""`python -m holdfast.cli` is the program `holdfast`."""

from holdfast.cli.main import main

main()
