"""Which path shows which page, and which form does what. `routes(...)` is what the server mounts at the root.

Every page needs the role read, every action operate, and those of `FOR_ADMINS` admin, as the API has it. The guard
(`holdfast.web.guard`) has checked Host, Origin and the CSRF token before anything here runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from holdfast.core.errors import HoldfastError
from holdfast.web.dashboard import actions
from holdfast.web.dashboard.pages import (
    batches,
    engine,
    execution,
    executions,
    flows,
    machines,
    operations,
    overview,
)
from holdfast.web.dashboard.render import STATIC, Page, Site
from holdfast.web.problems import TITLES, is_expected, problem_of
from holdfast.web.security import Role, require

Show = Callable[[Page], Awaitable[Response]]
Act = Callable[[Page, FormData], Awaitable[Response]]

PAGES: Final[tuple[tuple[str, Show], ...]] = (
    ("/", overview.overview),
    ("/executions", executions.executions),
    ("/executions/{id}", execution.execution),
    ("/machines", machines.machines),
    ("/machines/{name}", machines.machine),
    ("/flows", flows.flows),
    ("/flows/{name}", flows.flow),
    ("/batches", batches.batches),
    ("/operations", operations.operations),
    ("/operations/{id}", operations.operation),
    ("/queues", engine.queues),
    ("/schedules", engine.schedules),
    ("/workers", engine.workers),
    ("/dead-letters", engine.dead_letters),
)
ACTIONS: Final[tuple[tuple[str, Act], ...]] = (
    ("/executions/{action}", actions.on_executions),
    ("/executions/{id}/{action}", actions.on_execution),
    ("/executions/{id}/letters/{action}", actions.on_letter),
    ("/schedules/{name}/{action}", actions.on_schedule),
    ("/queues/{name:path}/{action}", actions.on_queue),
)
FOR_ADMINS: Final = frozenset({(actions.on_schedule, "delete"), (actions.on_queue, "limits")})


def routes(site: Site) -> list[BaseRoute]:
    """The pages, the actions and the static files."""
    found: list[BaseRoute] = [Route(path, _page(site, show), methods=["GET"]) for path, show in PAGES]
    found += [Route(path, _action(site, act), methods=["POST"]) for path, act in ACTIONS]
    found.append(Route("/favicon.ico", _icon, methods=["GET"]))
    found.append(Mount("/static", _Static(directory=STATIC)))
    return found


def _page(site: Site, show: Show) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        require(request, Role.READ)
        return await _shown(site, request, show)

    return answer


def _action(site: Site, act: Act) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        is_for_admins = (act, request.path_params["action"]) in FOR_ADMINS
        require(request, Role.ADMIN if is_for_admins else Role.OPERATE)
        form = await request.form()

        async def perform(page: Page) -> Response:
            return await act(page, form)

        return await _shown(site, request, perform)

    return answer


async def _icon(_: Request) -> Response:
    """For pages that name none, such as the one to sign in."""
    return FileResponse(STATIC / "icon.svg", media_type="image/svg+xml")


async def _shown(site: Site, request: Request, show: Show) -> Response:
    """A page, or a page that says why there is none. A fault of ours is the guard's: it has the request's id."""
    page = await Page.of(site, request)
    try:
        return await show(page)
    except HoldfastError as error:
        if not is_expected(error):
            raise
        problem = problem_of(error)
        return page.render(
            "problem.html",
            here="",
            title=TITLES[problem.word],
            text=problem.detail,
            status=problem.status,
            events_url="",
            live_words="",
        )


class _Static(StaticFiles):
    """An address that carries a hash of the content may be kept; any other is asked for again."""

    def file_response(self, full_path: Any, stat_result: Any, scope: Scope, status_code: int = 200) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        is_hashed = bool(scope.get("query_string"))
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if is_hashed else "no-cache"
        return response
