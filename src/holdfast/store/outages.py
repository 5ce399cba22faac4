"""What was given to this process and is taken away: an outage like any other, where the first refusal is a mistake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.core.errors import ConfigurationError, StoreUnavailableError


@contextmanager
def given_back_later(was_given: bool) -> Iterator[None]:
    """What this process could do before, and is refused, was taken away: by a changed password, a revoked grant, a
    schema that is being restored, a file system that is read-only now. That is mended in its place, and nothing here is
    at fault meanwhile."""
    try:
        yield
    except ConfigurationError as error:
        if not was_given:
            raise
        raise StoreUnavailableError(str(error)) from error
