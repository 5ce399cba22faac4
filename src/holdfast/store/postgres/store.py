"""The store on PostgreSQL. Every write is one call of a routine (routines/*.sql): one round trip and one commit.

- `ledger.py`: life, `connections.py` and their errors, `migrate.py`, `ears.py`
- `work.py`: insert, pick, flush, deliver; `flush.py`, `leaving.py` and `columns.py` turn values into arrays
- `outside.py`: leases, timers, cancel, pause, purge, queues
- `flowing.py`, `collating.py`: flows
- `batching.py`, `batch_effects.py`: batches
- `reading.py`: looking; `rows.py` turns rows into values; `recording.py`: whole ledgers as records;
  `watching.py`: for those who watch
"""

from __future__ import annotations

from holdfast.store.postgres.batching import Batching
from holdfast.store.postgres.defining import Defining
from holdfast.store.postgres.flowing import Flowing
from holdfast.store.postgres.health import Health
from holdfast.store.postgres.outside import Outside
from holdfast.store.postgres.recording import Recording
from holdfast.store.postgres.scheduling import Scheduling
from holdfast.store.postgres.transacting import Transacting
from holdfast.store.postgres.watching import Watched


class PostgresStore(Batching, Defining, Scheduling, Transacting, Flowing, Outside, Watched, Recording, Health):
    """A ledger in one schema of a PostgreSQL database: `schema`, `holdfast_schema=...` in the URL, or `holdfast`.

    `pooled` (or `pgbouncer=true` in the URL): a pooler in transaction mode is in between. Notifications need a session,
    so then `listen_url` should lead past it; without one, and with `listen=False`, other processes are polled.
    """

    def sibling(self) -> PostgresStore:
        url, listen_url = self._given_urls
        made = PostgresStore(
            url,
            schema=self._schema,
            connections=self._size,
            pooled=self._address.pooled,
            listen=self._listens,
            listen_url=listen_url,
        )
        made._is_let_in = self._is_let_in or self._is_open
        return made
