"""The page of errors says what the code says."""

import ast
from pathlib import Path

from app.errors import REFUSALS
from app.errors_docs import page

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_current():
    written = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")

    assert written == page(), "run `make docs`"


def test_every_refusal_of_the_front_end_is_raised_somewhere_and_none_is_missing():
    raised = set()
    for path in (ROOT / "app").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "RequestError":
                code = node.args[0]
                assert isinstance(code, ast.Constant), f"{path}:{node.lineno}"
                raised.add(code.value)

    assert raised == set(REFUSALS)
