"""Workflows: an `async def` that reads like a script. Ledger: the event journal, replayed."""
