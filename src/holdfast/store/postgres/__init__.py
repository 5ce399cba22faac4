"""The store on PostgreSQL 14 or newer: any number of workers on any number of machines share one ledger."""

from holdfast.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
