"""Machines: a class of small steps that return outcomes. Ledger: the current-state row."""
