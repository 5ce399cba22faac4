"""Holdfast beside its peers: `make bench-peers`, or `python -m benchmarks.peers --quick`.

catalogue     the workloads, and who is put to them with which settings
environments  a virtual environment for each peer, made once
plan          which calls make up a run, in which order
running       one call, one run: bounded in time, resumable, every failure named
summary       medians, spreads, ratios; the table
publishing    the JSON and the chart that README and documentation show
drivers/      one module a system, run as a process of its own
"""
