"""What is told of a grammar without compiling it."""

import pytest

from model.errors import InvalidGenerationError
from model.grammar import MAX_GRAMMAR_CHARS, MAX_NESTING, Grammar, GrammarKind, check_grammar


def _grammar(text: str, kind: GrammarKind = GrammarKind.REGEX) -> Grammar:
    return Grammar(kind=kind, text=text, param="response_format")


@pytest.mark.parametrize(
    "text",
    ["x" * (MAX_GRAMMAR_CHARS + 1), "(" * (MAX_NESTING + 1), '{"a":' * 70 + "1" + "}" * 70],
)
def test_what_is_too_large_or_too_deep_is_refused_by_its_senders_name(text):
    with pytest.raises(InvalidGenerationError) as caught:
        check_grammar(_grammar(text))

    assert caught.value.param == "response_format"


@pytest.mark.parametrize("text", ["", "(a)" * 1000, "\\(" * 100, "(" * MAX_NESTING])
def test_what_is_wide_or_escaped_is_not_deep(text):
    check_grammar(_grammar(text))


def test_every_kind_has_a_name_for_the_wire():
    assert [kind.value for kind in GrammarKind] == ["json_object", "json_schema", "regex", "lark"]
