"""Forms that change a run, and pages that show it without being reloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast.models.handle import Handle
from holdfast.web.security import Tokens
from tests.browser.conftest import DESKTOP, Served, Visitor, accessibility_problems, apart
from tests.browser.world import Order, Shop, World, is_ended, parked, until, worker

READ, OPERATE = "read-only-token-0001", "operators-token-0002"


class Bench:
    """A ledger of its own, served; work is done when a test says so."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.url = url

    def run(self, story: Callable[[Any], Any]) -> Any:
        """A part of the program, in a process of its own as far as the ledger can tell."""

        async def act() -> Any:
            shop = Shop(str(self.path))
            shop.flaky = 0
            async with shop.app:
                return await story(shop)

        return apart(act)

    def started(self, number: int = 1, total: float = 42.0, name: str = "checkout") -> str:
        """A run that has come as far as it can by itself."""

        async def story(shop: Any) -> str:
            handle: Handle[Any] = await getattr(shop, name).start(Order(number, total))
            async with worker(shop):
                await (parked(handle) if name == "checkout" else until(lambda: is_ended(handle)))
            return str(handle.id)

        return str(self.run(story))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    path = tmp_path_factory.mktemp("bench") / "shop.db"
    with Served(Shop(str(path))) as served:
        yield Bench(path, served.url)


@pytest.fixture
def page(browser: Browser, bench: Bench) -> Iterator[Page]:
    visitor = Visitor(browser, bench.url, viewport=DESKTOP)
    yield visitor.page
    visitor.close()


def badge(page: Page) -> Any:
    return page.locator(".title-line .badge").first


def test_signal_sent_from_the_page_is_delivered_and_the_run_goes_on_live(page: Page, bench: Bench) -> None:
    found = bench.started()
    page.goto(f"{bench.url}/executions/{found}")
    expect(page.locator(".live")).to_have_text("live")
    expect(page.get_by_label("Name")).to_have_value("approval")
    page.get_by_label("Payload, as JSON").fill('"ada"')
    page.get_by_role("button", name="Send signal").click()
    expect(page.locator(".flash")).to_have_text("The signal approval is delivered.")
    expect(page.locator("#rest")).to_contain_text("In the inbox")

    async def work(shop: Any) -> None:
        async with worker(shop):
            await until(lambda: _is_at(shop, found, "deliver"))

    bench.run(work)
    expect(page.locator("#timeline")).to_contain_text("deliver")  # nobody reloaded the page
    expect(page.locator("#rest")).not_to_contain_text("In the inbox")


async def _is_at(shop: Any, found: str, step: str) -> bool:
    return bool((await shop.app.handle(found).describe()).step == step)


def test_payload_that_is_no_json_is_refused_with_a_reason(page: Page, bench: Bench) -> None:
    page.goto(f"{bench.url}/executions/{bench.started()}")
    page.get_by_label("Payload, as JSON").fill("ada")
    page.get_by_role("button", name="Send signal").click()
    expect(page.locator(".flash.error")).to_contain_text("Text goes in quotes")


def test_pause_resume_and_cancel_change_the_run(page: Page, bench: Bench) -> None:
    found = bench.started()
    page.goto(f"{bench.url}/executions/{found}")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".title-line")).to_contain_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".title-line")).not_to_contain_text("paused")
    page.locator("#cancel-pop summary").click()
    page.get_by_role("button", name="Cancel this execution").click()
    expect(page.locator(".flash")).to_have_text("Cancel requested.")
    expect(page.locator(".title-line")).to_contain_text("cancel requested")

    async def work(shop: Any) -> None:
        async with worker(shop):
            await until(lambda: is_ended(shop.app.handle(found)))

    bench.run(work)
    expect(badge(page)).to_have_text("cancelled")


def test_run_that_nobody_can_mend_is_ended_as_it_stands(page: Page, bench: Bench) -> None:
    """No worker is up, and none would be needed."""
    page.goto(f"{bench.url}/executions/{bench.started()}")
    page.locator("#cancel-pop summary").click()
    page.get_by_label("As it stands, without its clean-up").check()
    page.get_by_role("button", name="Cancel this execution").click()
    expect(badge(page)).to_have_text("cancelled")


def test_start_by_name_once_a_key_and_a_name_nobody_knows_is_refused(page: Page, bench: Bench) -> None:
    bench.started()  # a worker of it was up, so that its names are known

    def start(name: str, given: str) -> None:
        page.goto(f"{bench.url}/executions")
        page.locator("#start-pop summary").click()
        assert accessibility_problems(page) == []
        page.get_by_label("Name", exact=True).first.fill(name)
        page.get_by_label("as JSON").fill(given)
        page.get_by_label("Key, to start it once").fill("from-the-page")
        page.get_by_role("button", name="Start it").click()

    start("mail", '{"to": "ada", "text": "hello"}')
    expect(page.locator("h1")).to_have_text("mail")
    expect(badge(page)).to_have_text("runnable")
    address = page.url
    start("mail", '{"to": "ada", "text": "hello"}')
    expect(page.locator("h1")).to_have_text("mail")
    assert page.url.split("?")[0] == address.split("?")[0]
    start("nobody_knows", "{}")
    expect(page.locator(".flash.error")).to_contain_text("nobody_knows")


def test_failed_run_is_retried_under_a_new_id(page: Page, bench: Bench) -> None:
    found = bench.started(3, 5000.0, "refund")
    page.goto(f"{bench.url}/dead-letters?status=failed")
    page.get_by_role("row").filter(has_text=found[:8]).get_by_role("link").click()
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".flash")).to_contain_text("goes on where the failed one stopped")
    assert found not in page.url or "." in page.url
    expect(badge(page)).to_have_text("runnable")
    page.goto(f"{bench.url}/executions/{found}")
    expect(page.locator(".alert").first).to_contain_text("It was retried as another run")


def test_fork_begins_with_the_past_up_to_an_event(page: Page, bench: Bench) -> None:
    found = bench.started()
    page.goto(f"{bench.url}/executions/{found}")
    page.locator("#journal summary").first.click()
    page.get_by_role("row").filter(has_text="RandomGenerated").get_by_role("button", name="Fork").click()
    expect(page.locator(".flash")).to_contain_text("This is the fork")
    assert found not in page.url
    expect(page.locator(".gantt")).to_contain_text("charge")
    expect(page.locator(".gantt")).not_to_contain_text("join set")


def test_schedules_are_paused_triggered_and_deleted(page: Page, bench: Bench) -> None:
    async def create(shop: Any) -> None:
        await shop.app.register()
        await shop.app.schedules.create("ad.hoc:1", "0 0 1 1 *", "mail", args={"to": "x", "text": "y"})

    bench.run(create)
    page.goto(f"{bench.url}/schedules")
    row = page.get_by_role("row").filter(has_text="ad.hoc:1")
    row.get_by_role("button", name="Pause").click()
    expect(page.locator(".flash")).to_have_text("ad.hoc:1 is paused.")
    row.get_by_role("button", name="Start now").click()
    expect(page.locator("h1")).to_have_text("mail")
    page.goto(f"{bench.url}/schedules")
    row.locator("summary").click()
    row.get_by_role("button", name="Delete ad.hoc:1").click()
    expect(row).to_have_count(0)


def test_limits_of_a_queue_are_set_and_it_is_paused(page: Page, bench: Bench) -> None:
    bench.started()
    page.goto(f"{bench.url}/queues")
    row = page.get_by_role("row").filter(has_text="default")
    row.locator("summary").click()
    row.get_by_label("At work at most").fill("7")
    row.get_by_role("button", name="Set limits").click()
    expect(row).to_contain_text("of 7")
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Resume").click()
    expect(row).to_contain_text("of 7")


def test_who_may_only_read_sees_no_actions_and_can_post_none(browser: Browser, world: World) -> None:
    tokens = Tokens([("read", READ), ("operate", OPERATE)])
    with Served(Shop(str(world.path)), tokens) as served:
        visitor = Visitor(browser, served.url, viewport=DESKTOP)
        visitor.expected.append("401")
        page = visitor.page
        page.goto(f"/executions/{world.ids['waiting']}")
        assert page.url.startswith(f"{served.url}/login")
        assert accessibility_problems(page) == []
        page.get_by_label("Token").fill(READ)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("h1")).to_have_text("checkout")
        expect(page.locator("main form")).to_have_count(0)
        token = page.locator("input[name=csrf_token]").first.input_value()
        form: dict[str, str | float | bool] = {"csrf_token": token}
        assert page.request.post(f"/executions/{world.ids['waiting']}/pause", form=form).status == 403
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("Token").fill(OPERATE)
        page.get_by_role("button", name="Sign in").click()
        page.goto(f"/executions/{world.ids['waiting']}")
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        expect(page.locator(".live")).to_have_text("live")
        visitor.context.clear_cookies()
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.locator(".live")).to_have_text("signed out")
        visitor.close()


def test_form_without_its_token_changes_nothing(browser: Browser, bench: Bench) -> None:
    found = bench.started()
    visitor = Visitor(browser, bench.url, viewport=DESKTOP)
    visitor.expected.append("403")
    page = visitor.visit(f"/executions/{found}")
    send = "([path, form]) => fetch(path, {method: 'POST', body: new URLSearchParams(form)}).then(a => a.status)"
    for form in ({}, {"csrf_token": "0" * 64}):
        assert page.evaluate(send, [f"/executions/{found}/pause", form]) == 403
    page.reload()
    expect(page.locator(".title-line")).not_to_contain_text("paused")
    visitor.close()
