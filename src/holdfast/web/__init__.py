"""The HTTP side: API, metrics, health, live events and the dashboard, in one Starlette application.

server     `build` an application from an app or a store; `serve` it with uvicorn
security   tokens and roles, sessions of browsers, CSRF, Host and Origin, headers
guard      the middleware that applies them to every request, with body limits and request ids
problems   errors as problem documents (RFC 9457)
table      the routes of the API: what drives routing, roles, the OpenAPI document and the tests
requests   the shapes of what clients send
api/       what each route does, one module a topic
openapi    the document made from the table and the shapes
streams    live events, derived from the ledger
metrics    Prometheus
dashboard/ pages for people
"""

from importlib.util import find_spec
from typing import Final

NEEDED: Final = ("starlette", "uvicorn", "jinja2", "prometheus_client")

for _needed in NEEDED:
    if find_spec(_needed) is None:
        # An ImportError, so that programs that serve only where it is installed can tell.
        raise ModuleNotFoundError(f"serving needs {_needed}: pip install 'holdfast[web]'", name=_needed)
