"""Read models: what the CLI's `--json`, the HTTP API and the dashboard show of a ledger.

- `shapes`: one struct a shape, its fields documented; JSON and its schemas are made from them.
- `reading`: functions that read them from a store.
"""
