"""The audit of a whole ledger against every rule of every model; `holdfast verify` and the test kit share it.

- `rules`: what must hold, as data, and `Fault`: one rule broken by one thing.
- `rows`: what one execution says of itself.
- `journals`: what its journal says.
- `auditor`: what several rows say together, and the whole.
"""
