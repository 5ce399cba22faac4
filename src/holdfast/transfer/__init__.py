"""Runs that move between ledgers: out into a file of JSON lines, and in again elsewhere, on either store.

- `format`: the lines, their version, and a file that is whole or refused.
- `exporting`: one tree or all, in one snapshot; with `pause`, so that it goes on nowhere meanwhile.
- `importing`: all of a file in one commit, or nothing.
"""
