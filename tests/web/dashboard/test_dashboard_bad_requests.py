"""What nobody types and everybody can send: no page breaks, whatever its address says."""

from __future__ import annotations

from typing import Any

import pytest
from tests.web.kit import Box, Shop, client

from holdfast import RetryPolicy
from holdfast.web.server import build

HUGE = "9" * 30
EDGE = str(2**63)
NUMBERS = (HUGE, EDGE, "-1", "0", "%D9%A1", "%C2%B2", "x")
FILTERS = ("", "name=order&", "status=done&", "status=failed&", "status=live&", "kind=batch&", "q=a%3D1&")
NAMES = ("%00", "nobody", "..%2f..", "a" * 5000)
ADDRESSES = (
    *(f"/executions?{field}=%00" for field in ("name", "queue", "kind", "status", "q", "after")),
    *(f"/executions?q={text}" for text in ("a%00%3D1", "a%3D%00", "a%3D1e999", f"a%3D{HUGE}", "a%3Dnan", "%ED%A0%80")),
    *(f"/executions?{where}after={text}" for where in FILTERS for text in NUMBERS),
    *(f"/api/v1/executions?{where}cursor={text}" for where in FILTERS[:3] for text in NUMBERS),
    *(f"/batches?after={text}" for text in NUMBERS),
    *(f"/dead-letters?status={status}&after={text}" for status in ("", "stranded") for text in NUMBERS),
    *(f"/{page}/{name}" for page in ("machines", "flows", "operations", "executions") for name in NAMES),
    *(f"/executions/ORDER?{field}={text}" for field in ("events", "rows") for text in NUMBERS),
    *(f"/executions/RUN?failed={text}" for text in NUMBERS),
    "/static/..%2f..%2froutes.py",
    "/static/%00",
    "/api/v1/executions?name=%00",
    "/api/v1/executions?queue=%00&status=done",
)


@pytest.mark.parametrize("part", range(4))
async def test_no_address_breaks_a_page(shop: Shop, part: int) -> None:
    @shop.app.batch(retry=RetryPolicy(max_attempts=1))
    async def half(number: int) -> float:
        return 1 / number

    order = await shop.order.start(5)
    await shop.parcel.start(Box(1))
    run: Any = await half.start(range(3))
    await run.fed()
    await shop.work()
    broken: list[tuple[str, int]] = []
    async with client(build(shop.app)) as pages:
        for path in ADDRESSES[part::4]:
            answer = await pages.get(path.replace("ORDER", str(order.id)).replace("RUN", str(run.id)))
            if answer.status_code >= 500:
                broken.append((path, answer.status_code))
    assert broken == []
