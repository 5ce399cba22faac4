"""Every page with real data: what it is for, no broken policy, accessible in light and dark, fit for a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import DESKTOP, PHONE, Served, Visitor, accessibility_problems
from tests.browser.world import World

# The path, with names of the world's executions in braces, and a text that must be there.
PAGES = [
    ("/", "Needs attention"),
    ("/executions", "newest first"),
    ("/executions?status=failed", "refund"),
    ("/executions/{done}", "Long waits are folded"),
    ("/executions/{failed}", "is more than the card allows"),
    ("/executions/{stranded}", "nothing is lost"),
    ("/executions/{waiting}", "Send signal"),
    ("/executions/{machine}", "State diagram"),
    ("/executions/{long}", "2000 of 2500"),
    ("/executions/{failed_task}", "no driver for this card"),
    ("/machines", "Shipment"),
    ("/machines/Shipment", "Where the live ones are"),
    ("/flows", "order"),
    ("/flows/order", "Graph"),
    ("/executions/{flow}", "Semaphore"),
    ("/batches", "resize"),
    ("/executions/{batch}", "Failed items"),
    ("/operations", "nightly-index"),
    ("/operations/nightly-index", "Frames"),
    ("/queues", "newsletter"),
    ("/schedules", "hourly-sync"),
    ("/workers", "A worker that does not beat"),
    ("/dead-letters", "stranded"),
]


@pytest.mark.parametrize(("path", "text"), PAGES)
def test_page_is_whole_accessible_and_fits_a_phone(
    browser: Browser, served: Served, world: World, path: str, text: str
) -> None:
    visitor = Visitor(browser, served.url, viewport=DESKTOP, color_scheme="light")
    page = visitor.visit(path.format(**world.ids))
    expect(page.locator("main")).to_contain_text(text)
    expect(page.locator("h1")).to_have_count(1)
    assert accessibility_problems(page) == []
    buttons = page.locator("td :is(button, summary.btn), .gantt form button").all_text_contents()
    assert len(set(buttons)) == len(buttons), "two of them are the same to who does not see their rows"
    page.emulate_media(color_scheme="dark")
    # Only what a theme can change; the rest is the same document.
    assert accessibility_problems(page, runOnly=["color-contrast"]) == []
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    visitor.close()


def test_an_address_without_a_page_is_told_on_one(browser: Browser, served: Served) -> None:
    visitor = Visitor(browser, served.url, viewport=DESKTOP, color_scheme="light")
    visitor.expected.append("404")
    page = visitor.page
    page.goto("/nowhere")
    expect(page.locator("h1")).to_have_text("There is no such thing")
    assert accessibility_problems(page) == []
    page.emulate_media(color_scheme="dark")
    assert accessibility_problems(page, runOnly=["color-contrast"]) == []
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("h1")).to_have_text("Overview")
    visitor.close()
