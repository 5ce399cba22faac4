"""What an action has to say on the page that follows it: a cookie that is read once."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

COOKIE: Final = "holdfast_notice"
TEXT_MAX: Final = 400
VALUE_MAX: Final = 3_600  # browsers drop a cookie of more than 4096 bytes, with all that belongs to it


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
        text = self.text[:TEXT_MAX]
        while len(quoted := quote(text, safe="")) > VALUE_MAX:  # a character may be twelve bytes of it
            text = text[: len(text) * 9 // 10]
        value = ("-" if self.is_error else "+") + quoted
        response.set_cookie(COOKIE, value, max_age=60, httponly=True, samesite="strict", path="/")

    def forget(self, response: Response) -> None:
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
