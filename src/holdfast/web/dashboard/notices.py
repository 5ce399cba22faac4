"""What an action has to say on the page that follows it: a cookie that is read once."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

COOKIE: Final = "holdfast_notice"
TEXT_MAX: Final = 400


class Notice(Struct, frozen=True):
    text: str
    is_error: bool = False

    @classmethod
    def taken_from(cls, request: Request) -> Notice | None:
        found = request.cookies.get(COOKIE)
        if not found:
            return None
        return cls(unquote(found[1:])[:TEXT_MAX], found[0] == "-")

    def leave(self, response: Response) -> None:
        value = ("-" if self.is_error else "+") + quote(self.text[:TEXT_MAX], safe="")
        response.set_cookie(COOKIE, value, max_age=60, httponly=True, samesite="strict", path="/")

    def forget(self, response: Response) -> None:
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
