"""What users wrote (names, payloads, errors, keys, attributes) is text on every page, whatever it looks like."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Visitor
from tests.browser.world import XSS, World

PLACES = [
    ("/executions/{hostile}", 3),  # key, attribute, input
    ("/executions/{waiting}", 3),  # input, inbox: a payload and the name of a signal
    ("/executions/{failed_task}", 1),  # an error
    ("/dead-letters", 1),
    ("/executions?kind=task", 1),
    ("/executions/{batch}", 11),  # errors of items
    ("/", 1),
    ("/operations/nightly-index", 1),
    ("/executions?q=%3Cimg+src%3Dx+onerror%3D%22document.title%3D%27hacked%27%22%3E", 1),
    ("/executions?name=%22%3E%3Cscript%3Edocument.title%3D%27hacked%27%3C%2Fscript%3E", 0),
    ("/executions?status=%3Cscript%3Edocument.title%3D%27hacked%27%3C%2Fscript%3E", 1),
]


@pytest.mark.parametrize(("path", "least"), PLACES)
def test_markup_is_shown_and_never_run(visitor: Visitor, world: World, path: str, least: int) -> None:
    page = visitor.visit(path.format(**world.ids))
    page.evaluate("document.querySelectorAll('details').forEach(item => { item.open = true })")
    assert "hacked" not in page.title()
    assert page.locator("img").count() == 0
    assert page.locator("script:not([src])").count() == 0
    assert page.locator("[onerror]").count() == 0
    shown = page.locator("main").inner_text() + " ".join(
        field.input_value() for field in page.locator("main input[type=search], main input[type=text]").all()
    )
    assert shown.count("<img src=x") + shown.count("<script>") >= least
    assert "49" not in [text.strip() for text in shown.split("'\"")]  # no template was evaluated


def test_unknown_execution_says_what_was_asked_for_as_text(visitor: Visitor) -> None:
    visitor.expected.append("404")
    answer = visitor.page.goto(f"/executions/abcdef12?x={XSS}")
    assert answer is not None
    assert answer.status == 404
    assert "abcdef12" in visitor.page.locator("main").inner_text()
    assert visitor.page.title() == "There is no such thing · Holdfast"
