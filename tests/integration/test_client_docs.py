"""The client's document: its examples, run as they stand against a real server, and its tables."""

import re

import pytest

import splice
from tests.support.examples import DOCUMENTED_URL, ROOT, examples_of, run_python

pytestmark = pytest.mark.timeout(300)

EXAMPLES = [source for language, source in examples_of("docs/client.md") if language == "python"]
# What an example shows at its end, by its title.
SHOWN = {
    "conversation": r"^\d+ tokens were there already\n\['What is the capital of Norway\?', ",
    "futures": r"(^\d+ tokens reused: [^\0]*?){3}^True\n(cancelled|incomplete|completed) Usage\(",
    "resume": r"^\[6, 7, .*\]\n",
    "openai": r"'function_call', 'function_call_output', 'message'\]\n$",
    "agents": r"^\['user', 'assistant'\]\n\[\]\n$",
}


@pytest.mark.parametrize(
    ("name", "source"), list(zip(SHOWN, EXAMPLES, strict=True)), ids=list(SHOWN)
)
def test_an_example_runs_and_shows_what_it_should(live_server, tmp_path, name, source):
    assert DOCUMENTED_URL in source

    done = run_python(source, live_server, tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert re.search(SHOWN[name], done.stdout, re.MULTILINE), done.stdout


def test_the_document_names_every_error_and_every_event():
    text = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    kinds = [getattr(splice, name) for name in splice.__all__]
    named = {
        kind.__name__
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, splice.SpliceError | splice.Event)
    }

    assert len(named) > 15
    assert not {name for name in named if name not in text}


def test_the_document_names_all_that_a_session_can_do():
    text = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    methods = {name for name in vars(splice.AsyncSession) if not name.startswith("_")} - {"id"}

    assert not {name for name in methods if f"`{name}" not in text}
