"""The pictures of the documentation: `python -m tests.browser.screenshots docs/img`.

A shop that has been open for an hour, seen by the same browser that the tests use. Pictures are written with a palette,
which makes them a third as large.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from struct import pack, unpack
from typing import Any
from zlib import compress, crc32, decompress

from playwright.sync_api import Browser, ViewportSize, expect, sync_playwright

from holdfast.store.sqlite import SqliteStore
from tests.browser.conftest import Served, apart, launched
from tests.browser.world import HOUR, ShiftedClock, Shop, World, fill, is_idle, until

MINUTES = 60
COLOURS = 256


async def open_hour(path: Path) -> None:
    """An hour of small work, a minute at a time."""
    clock = ShiftedClock(-HOUR)
    shop: Any = Shop(SqliteStore(path, clock=clock), "")
    chance = Random(4)
    async with shop.app, shop.app.worker(queues=["default", "mail", "gpu"], lease_seconds=4 * HOUR):
        for minute in range(MINUTES):
            shop.flaky = 0
            busy = 12 + round(9 * chance.random()) + (14 if 20 < minute < 34 else 0)
            for number in range(busy):
                await shop.mail.start(f"reader-{number}", "the news")
            if chance.random() < 0.12:
                await shop.render_label.start(minute)
            await until(lambda: is_idle(shop))
            clock.seconds += HOUR / MINUTES
        clock.seconds = 0


async def make(folder: Path) -> World:
    path = folder / "shop.db"
    await open_hour(path)
    world = await fill(path, "")
    store = SqliteStore(path)
    await store.open()
    for number in (1, 2, 3):
        queues = ["default", "mail"] if number < 3 else ["gpu"]
        await store.register_worker(
            f"w{number}", host=f"app-{number}", pid=100 + number, queues=queues, lease_seconds=600
        )
    await store.close()
    return world


def shots(world: World) -> list[tuple[str, str, ViewportSize, str]]:
    """Name, path, size and theme."""
    desktop: ViewportSize = {"width": 1280, "height": 860}
    return [
        ("dashboard-overview", "/", desktop, "light"),
        ("dashboard-run", f"/executions/{world.ids['done']}", {"width": 1280, "height": 690}, "light"),
        ("dashboard-run-dark", f"/executions/{world.ids['done']}", {"width": 1280, "height": 760}, "dark"),
        ("dashboard-run-phone", f"/executions/{world.ids['done']}", {"width": 390, "height": 800}, "light"),
        ("dashboard-machine", f"/executions/{world.ids['machine']}", desktop, "light"),
        ("dashboard-flow", f"/executions/{world.ids['flow']}", desktop, "light"),
        ("dashboard-batch", f"/executions/{world.ids['batch']}", {"width": 1280, "height": 620}, "light"),
    ]


def take(browser: Browser, url: str, world: World, target: Path) -> None:
    for name, path, size, theme in shots(world):
        context = browser.new_context(base_url=url, viewport=size, color_scheme=theme)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(path)
        expect(page.locator(".live").first).not_to_have_text("connecting")
        if name == "dashboard-run-dark":
            page.locator(".gantt > details").first.evaluate("row => { row.open = true }")
        raw = page.screenshot()
        small = with_palette(raw)
        (target / f"{name}.png").write_bytes(min(raw, small, key=len))
        context.close()


# ---------------------------------------------------------------------- smaller pictures


def with_palette(png: bytes) -> bytes:
    """The same picture in its 256 most frequent colours; the others become the nearest of these."""
    width, height, pixels = _pixels(png)
    counts = Counter(pixels)
    palette = [colour for colour, _ in counts.most_common(COLOURS)]
    index = {colour: at for at, colour in enumerate(palette)}
    for colour in counts:
        if colour not in index:
            near = min(range(len(palette)), key=lambda at: _distance(palette[at], colour))
            index[colour] = near
    rows = b"".join(
        b"\0" + bytes(index[colour] for colour in pixels[row * width : (row + 1) * width]) for row in range(height)
    )
    head = pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [(b"IHDR", head), (b"PLTE", b"".join(palette)), (b"IDAT", compress(rows, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _distance(one: bytes, two: bytes) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, two, strict=True))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return pack(">I", len(data)) + kind + data + pack(">I", crc32(kind + data))


def _pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Of a PNG with eight bits a channel, without interlacing, as Chromium writes it."""
    at, body, width, height, channels = 8, b"", 0, 0, 3
    while at < len(png):
        length, kind = unpack(">I4s", png[at : at + 8])
        data = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, _, colour = unpack(">IIBB", data[:10])
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            body += data
        at += length + 12
    lines, stride = decompress(body), width * channels
    above, pixels = bytearray(stride), []
    for row in range(height):
        start = row * (stride + 1)
        line = _unfiltered(lines[start], bytearray(lines[start + 1 : start + 1 + stride]), above, channels)
        pixels += [bytes(line[x : x + 3]) for x in range(0, stride, channels)]
        above = line
    return width, height, pixels


def _unfiltered(kind: int, line: bytearray, above: bytearray, step: int) -> bytearray:
    for x in range(len(line)):
        left = line[x - step] if x >= step else 0
        corner = above[x - step] if x >= step else 0
        match kind:
            case 1:
                guess = left
            case 2:
                guess = above[x]
            case 3:
                guess = (left + above[x]) // 2
            case 4:
                p = left + above[x] - corner
                guess = min((left, above[x], corner), key=lambda value: abs(p - value))
            case _:
                return line
        line[x] = (line[x] + guess) & 255
    return line


def main() -> None:
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        world = apart(lambda: make(Path(folder)))
        shop: Any = Shop(str(world.path), "")
        with Served(shop, operations=world.operations) as served, sync_playwright() as driver:
            browser = launched(driver)
            take(browser, served.url, world, target)
            browser.close()


if __name__ == "__main__":
    main()
