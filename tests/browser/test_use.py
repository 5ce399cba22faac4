"""Getting around: keys, search, pages, themes, a phone, an empty ledger, many executions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from holdfast.store.sqlite import SqliteStore
from tests.browser.conftest import DESKTOP, PHONE, Served, Visitor, apart
from tests.browser.world import Shop, World, crowd


def test_keyboard_alone_reaches_an_operation_of_a_run(visitor: Visitor, world: World) -> None:
    page = visitor.visit("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("g")
    page.keyboard.press("e")
    expect(page.locator("h1")).to_have_text("Executions")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type(world.ids["done"][:10])
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("checkout")
    operation = page.locator(".gantt > details").first
    operation.locator("> summary").focus()
    page.keyboard.press("Enter")
    expect(operation.get_by_text("2 failed attempts")).to_be_visible()


def test_escape_closes_a_panel_and_gives_the_focus_back(visitor: Visitor, world: World) -> None:
    page = visitor.visit(f"/executions/{world.ids['waiting']}")
    opener = page.locator("#cancel-pop summary")
    opener.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Cancel this execution")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Cancel this execution")).to_be_hidden()
    expect(opener).to_be_focused()


def test_the_focus_stays_where_it_is_when_the_page_is_refreshed(visitor: Visitor, world: World) -> None:
    page = visitor.visit(f"/executions/{world.ids['waiting']}")
    for opener in (page.locator("#cancel-pop summary"), page.get_by_role("link", name="Draw to scale")):
        opener.focus()
        opener.evaluate("element => { element.dataset.old = 'yes'; }")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # as when somebody comes back to it
        expect(page.locator("[data-old]")).to_have_count(0)
        expect(opener).to_be_focused()


def test_timeline_tells_attempts_waits_and_where_the_time_went(visitor: Visitor, world: World) -> None:
    page = visitor.visit(f"/executions/{world.ids['done']}")
    legend = page.locator(".legend")
    for words in ("sleeping", "in children", "before retries", "working"):
        expect(legend).to_contain_text(words)
    charge = page.locator(".gantt > details").first
    assert [mark.get_attribute("class") for mark in charge.locator("svg.bar rect:not(.fold)").all()] == [
        "k-work t-bad", "k-retry t-bad", "k-work t-bad", "k-retry t-bad", "k-work t-good",
    ]  # fmt: skip
    expect(charge).to_contain_text("×3")
    page.get_by_role("link", name="Draw to scale").click()
    expect(page.locator("#timeline")).to_contain_text("To scale.")
    assert page.locator(".fold").count() == 0 or page.locator("rect.fold").count() == 0


def test_times_are_in_a_persons_terms_with_the_exact_one_on_hover(
    browser: Browser, served: Served, world: World
) -> None:
    visitor = Visitor(browser, served.url, viewport=DESKTOP, timezone_id="Asia/Kolkata", locale="en-GB")
    page = visitor.visit(f"/executions/{world.ids['done']}")
    started = page.locator("dl.kv time").first
    expect(started).to_have_text(re.compile(r"^1 d [56] h ago$"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC", started.get_attribute("title") or "")
    started.hover()
    expect(started).to_have_attribute("title", re.compile(r" UTC\n.* GMT\+5:30$"))
    visitor.close()


@pytest.mark.parametrize(
    ("search", "shown", "hidden"),
    [
        ("customer=17", "checkout", "newsletter"),
        ("customer=17 vip=true", "order-4", ""),
        ("refund", "refund", "checkout"),
        ("customer=18", "No execution fits", "checkout"),
        ("two words", "The search was not understood", "checkout"),
    ],
)
def test_search_finds_by_name_and_attribute(
    visitor: Visitor, world: World, search: str, shown: str, hidden: str
) -> None:
    page = visitor.visit("/executions")
    page.get_by_role("searchbox").fill(search)
    page.get_by_role("button", name="Search").click()
    if shown == "order-4":
        page.locator("#list a.rowlink").click()
    expect(page.locator("main")).to_contain_text(shown)
    if hidden:
        expect(page.locator("#list")).not_to_contain_text(hidden)


def test_theme_is_changed_and_kept(visitor: Visitor) -> None:
    page = visitor.visit("/queues")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Theme").click()
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before != after
    page.goto("/workers")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after


def test_paper_shows_the_run_alone_and_is_light(visitor: Visitor, world: World) -> None:
    page = visitor.visit(f"/executions/{world.ids['waiting']}")
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 28, 30)"
    for hidden in (page.get_by_role("navigation", name="Pages"), page.locator("form")):
        assert not any(found.is_visible() for found in hidden.all())
    expect(page.locator("#timeline")).to_be_visible()


def test_id_is_copied(visitor: Visitor, world: World) -> None:
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visitor.visit(f"/executions/{world.ids['done']}")
    page.get_by_role("button", name="copy").first.click()
    expect(page.locator(".copy").first).to_have_text("copied")
    expect(page.get_by_role("status")).to_have_text("copied")
    assert page.evaluate("navigator.clipboard.readText()") == world.ids["done"]


def test_id_is_copied_where_the_browser_gives_no_clipboard(visitor: Visitor, world: World) -> None:
    """As on every page that came without TLS from another machine."""
    visitor.page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page = visitor.visit(f"/executions/{world.ids['waiting']}")
    page.get_by_role("button", name="copy").first.click()  # what it says then goes with the next refresh of a live page
    page.get_by_label("Payload, as JSON").focus()
    page.keyboard.press("Control+V")
    expect(page.get_by_label("Payload, as JSON")).to_have_value(world.ids["waiting"])


def test_a_form_of_before_a_restart_is_good_again_once_the_page_is_live(visitor: Visitor, world: World) -> None:
    """Although somebody is writing in it, so that it is not replaced."""
    page = visitor.visit(f"/executions/{world.ids['waiting']}")
    token = page.locator("#signal-form input[name=csrf_token]")
    good = token.input_value()
    token.evaluate("input => { input.value = 'of before' }")
    page.get_by_label("Payload, as JSON").fill("[1, 2")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(token).to_have_value(good)
    expect(page.get_by_label("Payload, as JSON")).to_have_value("[1, 2")


def test_a_page_that_is_come_back_to_can_be_used(visitor: Visitor, world: World) -> None:
    """A browser that kept it shows it as it was left: with the button of what was sent."""
    page = visitor.visit(f"/executions/{world.ids['waiting']}")
    page.evaluate("document.addEventListener('submit', event => event.preventDefault())")
    page.get_by_role("button", name="Send signal").click()
    with page.expect_response(f"**/executions/{world.ids['waiting']}") as refreshed:
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    refreshed.value.finished()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    expect(page.get_by_role("button", name="Send signal")).to_be_disabled()  # a refresh does not give it back
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    expect(page.get_by_role("button", name="Send signal")).to_be_enabled()


def test_fields_without_a_value_are_not_in_the_address(visitor: Visitor) -> None:
    page = visitor.visit("/executions")
    page.get_by_label("Queue").fill("mail")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/executions\?queue=mail$"))


def test_a_page_that_cannot_be_renewed_says_so(visitor: Visitor, world: World) -> None:
    page = visitor.visit(f"/executions/{world.ids['waiting']}")
    sign = page.locator(".live")
    expect(sign).to_have_text("live")
    page.route("**/executions/*", lambda route: route.fulfill(status=503, body="gone"))
    visitor.expected.append("503")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(sign).to_have_text("out of date")
    page.unroute("**/executions/*")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(sign).to_have_text("live")


def test_menu_opens_on_a_phone(browser: Browser, served: Served) -> None:
    visitor = Visitor(browser, served.url, viewport=PHONE, has_touch=True)
    page = visitor.visit("/")
    expect(page.get_by_role("link", name="Schedules")).to_be_hidden()
    page.get_by_role("button", name="Menu").tap()
    page.get_by_role("link", name="Schedules").tap()
    expect(page.locator("h1")).to_have_text("Schedules")
    visitor.close()


def test_everything_works_without_scripts(browser: Browser, served: Served, world: World) -> None:
    visitor = Visitor(browser, served.url, viewport=PHONE, java_script_enabled=False)
    page = visitor.visit("/")
    page.get_by_role("link", name="Executions", exact=True).click()
    page.get_by_role("searchbox").fill(world.ids["paused"][:10])
    page.get_by_role("button", name="Search").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".flash")).to_have_text("Resumed.")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".title-line")).to_contain_text("paused")
    visitor.close()


def test_a_page_whose_stream_was_refused_is_live_again(visitor: Visitor) -> None:
    refused: list[str] = []

    def refuse_twice(route: Route) -> None:
        if len(refused) == 2:
            route.continue_()
            return
        refused.append(route.request.url)
        route.fulfill(status=503, body="full")

    visitor.expected.append("503")
    visitor.page.route("**/api/v1/events*", refuse_twice)
    page = visitor.visit("/")
    expect(page.locator(".live")).to_have_text("live")
    assert len(refused) == 2


def test_empty_ledger_says_what_to_do(browser: Browser, tmp_path: Path) -> None:
    with Served(Shop(str(tmp_path / "empty.db"))) as served:
        visitor = Visitor(browser, served.url, viewport=DESKTOP)
        for path, text in [
            ("/", "The ledger is empty"),
            ("/executions", "The ledger is empty"),
            ("/machines", "No machine is known"),
            ("/flows", "No flow is known"),
            ("/batches", "No batch was started"),
            ("/operations", "No folder is served"),
            ("/queues", "No queue yet"),
            ("/schedules", "Nothing is scheduled"),
            ("/workers", "No worker is running"),
            ("/dead-letters", "No dead letters"),
        ]:
            expect(visitor.visit(path).locator("main")).to_contain_text(text)
        visitor.close()


def test_many_executions_are_paged_by_key_and_none_is_shown_twice(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "crowd.db"

    async def fill_crowd() -> None:
        store = SqliteStore(path)
        await store.open()
        await crowd(store, 20_120)
        await store.close()

    apart(fill_crowd)
    with Served(Shop(str(path))) as served:
        visitor = Visitor(browser, served.url, viewport=DESKTOP)
        expect(visitor.visit("/").locator(".tiles")).to_contain_text("about 20 k")  # of a sample
        page = visitor.visit("/executions?queue=bulk")
        seen: list[str | None] = []
        for _ in range(3):
            seen += [link.get_attribute("href") for link in page.locator("#list a.rowlink").all()]
            page.get_by_role("link", name="Older").click()
        assert len(set(seen)) == 150
        page.get_by_role("link", name="Newest").click()
        assert page.locator("#list a.rowlink").first.get_attribute("href") == seen[0]
        visitor.close()
