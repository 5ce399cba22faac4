"""Exit codes, and from an error to its code and its one line.

0 done, 1 what was asked for could not be done, 2 wrong use, 3 no such id or an ambiguous one, 4 the store cannot be
used. These are part of the interface: scripts branch on them.
"""

from __future__ import annotations

import re
from enum import IntEnum

from holdfast.core.errors import (
    AmbiguousIdError,
    ConfigurationError,
    HoldfastError,
    InvalidArgumentError,
    NotFoundError,
    StoreError,
)
from holdfast.models.operation.errors import LedgerStorageError, OperationNotFoundError


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    WRONG_USE = 2
    NOT_FOUND = 3
    STORE_UNAVAILABLE = 4
    INTERRUPTED = 130  # as a shell reports SIGINT


class CommandError(HoldfastError):
    """A command's own refusal, with the code to exit with."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.code = code


_CODES: tuple[tuple[type[HoldfastError], Exit], ...] = (
    (NotFoundError, Exit.NOT_FOUND),
    (AmbiguousIdError, Exit.NOT_FOUND),
    (OperationNotFoundError, Exit.NOT_FOUND),
    (StoreError, Exit.STORE_UNAVAILABLE),
    (LedgerStorageError, Exit.STORE_UNAVAILABLE),
    (ConfigurationError, Exit.WRONG_USE),
    (InvalidArgumentError, Exit.WRONG_USE),
)


def code_of(error: HoldfastError) -> Exit:
    if isinstance(error, CommandError):
        return error.code
    return next((code for cls, code in _CODES if isinstance(error, cls)), Exit.FAILED)


_WORD = re.compile(r"\S+")
_USER = re.compile(r"(?<=\w)://[^/:@]*:")
_PASSWORD_OPTION = re.compile(r"((?:[?&]|\b)(?:password|sslpassword|passfile)=)[^\s&]+", re.IGNORECASE)


def redacted(text: str) -> str:
    """The same text without the passwords of URLs: the last line of defence before a terminal or a log."""
    return _PASSWORD_OPTION.sub(r"\1***", _WORD.sub(_without_user_info, text))


def _without_user_info(word: re.Match[str]) -> str:
    """To the last @: a password may hold what should be encoded. One regex for it all would be quadratic."""
    text = word[0]
    user, at = _USER.search(text), text.rfind("@")
    return text if user is None or at < user.end() else f"{text[: user.end()]}***{text[at:]}"


def redacted_url(url: str) -> str:
    """A database as it may be shown, however badly its URL is written."""
    scheme, separator, rest = url.partition("://")
    user_info, _, host = rest.rpartition("@")
    user, has_password, _ = user_info.partition(":")
    if separator and has_password and not user.startswith("/"):
        url = f"{scheme}://{user}:***@{host}"
    return redacted(url)


def one_line(error: BaseException) -> str:
    """An error as people see it: its message, on one line, without secrets."""
    return redacted(" ".join(str(error).split()) or type(error).__name__)
