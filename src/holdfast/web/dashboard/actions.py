"""What forms post. Each action does one thing through a `Handle`, leaves a notice, and sends the browser back.

Whether the request may act, and whether it comes from our own pages, was checked before (`routes.action`).
"""

from __future__ import annotations

import msgspec
from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response

from holdfast.core.durations import seconds
from holdfast.core.errors import HoldfastError, InvalidArgumentError
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.models.batch.run import BatchRun
from holdfast.models.handle import Handle
from holdfast.models.options import check_limits, check_queue
from holdfast.store.values import Delivery, QueueChange
from holdfast.views import finding
from holdfast.web.dashboard.render import Page
from holdfast.web.notices import Notice
from holdfast.web.problems import is_expected
from holdfast.web.security import Role, require


def back(path: str, text: str, *, is_error: bool = False) -> Response:
    """To the page that shows what became of it."""
    response = RedirectResponse(path, 303)
    Notice(text, is_error).leave(response)
    return response


def refused(path: str, error: HoldfastError) -> Response:
    """Why it was not done. A fault of ours is raised on, to the log and a page of its own: it tells people nothing."""
    if not is_expected(error):
        raise error
    return back(path, str(error), is_error=True)


def list_of(page: Page, path: str) -> str:
    """The page of a list that a form was on."""
    query = page.request.url.query
    return f"{path}?{query}" if query else path


def field(form: FormData, name: str) -> str:
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""


async def on_executions(page: Page, form: FormData) -> Response:
    """`/executions/{action}`: start something by its name."""
    action, here = page.request.path_params["action"], "/executions"
    if action != "start":
        return back(here, f"there is no action {action!r}", is_error=True)
    try:
        given, key = _json(field(form, "input") or "null", "the input"), field(form, "key") or None
        handle, existing = await page.site.app._start_or_find(field(form, "name"), given, key=key)
    except HoldfastError as error:
        return refused(here, error)
    return back(f"/executions/{handle.id}", "Its key had started it before: this is it." if existing else "Started.")


async def on_execution(page: Page, form: FormData) -> Response:
    """`/executions/{id}/{action}`."""
    view = await finding.find(page.store, page.request.path_params["id"])
    promise = PromiseId.from_bytes(view.promise)
    handle = page.site.app.handle(promise)
    here = f"/executions/{promise}"
    if _is_forced(form):
        require(page.request, Role.ADMIN)
    try:
        if view.kind == "batch":
            return await _steer_batch(page.site.app.batch_run(promise), page.request.path_params["action"], form, here)
        return await _act(handle, page.request.path_params["action"], form, here)
    except HoldfastError as error:
        return refused(here, error)


async def _act(handle: Handle[object], action: str, form: FormData, here: str) -> Response:
    match action:
        case "cancel":
            cascade, reason, force = field(form, "cascade") == "yes", field(form, "reason") or None, _is_forced(form)
            status = await handle.cancel(cascade=cascade, reason=reason, force=force)
            return _cancelled(here, status, "Cancel requested.")
        case "pause":
            await handle.pause()
            return back(here, "Paused: nobody works on it until it is resumed.")
        case "resume":
            await handle.resume()
            return back(here, "Resumed.")
        case "retry":
            retried = await handle.retry()
            return back(f"/executions/{await retried.resolve()}", "This run goes on where the failed one stopped.")
        case "fork":
            forked = await handle.fork(_number(field(form, "at"), "the event to fork at"))
            return back(f"/executions/{await forked.resolve()}", "This is the fork; the run it came from is as it was.")
        case "signal":
            return await _signal(handle, form, here)
    raise InvalidArgumentError(f"there is no action {action!r}")


def _cancelled(here: str, status: Status, requested: str) -> Response:
    """It may have ended while somebody looked at it."""
    if status.is_terminal and status is not Status.CANCELLED:
        return back(here, f"It had ended before: it is {status}.", is_error=True)
    return back(here, "Cancelled." if status.is_terminal else requested)


def _is_forced(form: FormData) -> bool:
    return field(form, "force") == "yes"


async def _steer_batch(run: BatchRun[object], action: str, form: FormData, here: str) -> Response:
    """A run takes its chunks along."""
    match action:
        case "cancel":
            status = await run.cancel(reason=field(form, "reason") or None, force=_is_forced(form))
            return _cancelled(here, status, "Cancel requested: what runs has its grace, and every item ends.")
        case "pause":
            await run.pause()
            return back(here, "Paused: chunks that are being worked on are finished first.")
        case "resume":
            await run.resume()
            return back(here, "Resumed.")
        case "retry-failed":
            retried = await run.retry_failed()
            return back(f"/executions/{retried.id}", "This run takes the failed items of the other one again.")
    raise InvalidArgumentError(f"there is no action {action!r} for a batch")


async def on_letter(page: Page, form: FormData) -> Response:
    """`/executions/{id}/letters/{action}`: a dead letter of a flow's job is tried again, or given up."""
    view = await finding.find(page.store, page.request.path_params["id"])
    here = f"/executions/{PromiseId.from_bytes(view.promise)}"
    letters, action = page.site.app.dead_letters, page.request.path_params["action"]
    try:
        match action:
            case "retry":
                await letters.retry(field(form, "message"))
                return back(here, "It is put back to work.")
            case "drop":
                await letters.drop(field(form, "message"))
                return back(here, "It is given up; its job fails.")
    except HoldfastError as error:
        return refused(here, error)
    return back(here, f"there is no action {action!r}", is_error=True)


async def _signal(handle: Handle[object], form: FormData, here: str) -> Response:
    payload = _json(field(form, "payload") or "null", "the payload")
    name = field(form, "name")
    answer = await handle.signal(name, payload)
    return back(here, f"The signal {name} {'was there already' if answer is Delivery.DUPLICATE else 'is delivered'}.")


async def on_schedule(page: Page, form: FormData) -> Response:
    """`/schedules/{name}/{action}`."""
    name, action = page.request.path_params["name"], page.request.path_params["action"]
    schedules, here = page.site.app.schedules, list_of(page, "/schedules")
    try:
        match action:
            case "pause":
                await schedules.pause(name)
                return back(here, f"{name} is paused.")
            case "resume":
                await schedules.resume(name)
                return back(here, f"{name} goes on.")
            case "trigger":
                handle = await schedules.trigger(name)
                return back(f"/executions/{await handle.resolve()}", f"Started by the schedule {name}, out of turn.")
            case "delete":
                await schedules.delete(name)
                return back(here, f"{name} is deleted; what it has started goes on.")
    except HoldfastError as error:
        return refused(here, error)
    return back(here, f"there is no action {action!r}", is_error=True)


async def on_queue(page: Page, form: FormData) -> Response:
    """`/queues/{name}/{action}`: pause and resume, with its other settings as they are; or new limits."""
    name, action = page.request.path_params["name"], page.request.path_params["action"]
    here = list_of(page, "/queues")
    try:
        if action == "limits":
            await page.store.change_queue(check_queue(name), _limits(form))
            return back(here, f"The limits of {name} are set.")
        if action in ("pause", "resume"):
            await page.store.change_queue(check_queue(name), QueueChange(paused=action == "pause"))
            return back(here, f"{name} is paused." if action == "pause" else f"{name} goes on.")
    except HoldfastError as error:
        return refused(here, error)
    return back(here, f"there is no action {action!r}", is_error=True)


def _limits(form: FormData) -> QueueChange:
    concurrency_text, rate_text = field(form, "concurrency"), field(form, "rate")
    concurrency = _number(concurrency_text, "the concurrency") if concurrency_text else None
    rate = _decimal(rate_text, "the rate") if rate_text else None
    period = seconds(_decimal(field(form, "rate_seconds") or "1", "the period"), name="rate_period")
    check_limits(concurrency, rate, period)
    return QueueChange(concurrency=concurrency, rate=rate, rate_seconds=period)


def _json(text: str, what: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgumentError(f"{what} is no JSON: {error}. Text goes in quotes") from None


def _number(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidArgumentError(f"{what} is a whole number, not {text!r}") from None


def _decimal(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidArgumentError(f"{what} is a number, not {text!r}") from None
