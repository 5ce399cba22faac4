"""Holdfast measured: `python -m benchmarks WORKLOAD --store sqlite|postgres|URL --n N --rounds 3 --json`."""
