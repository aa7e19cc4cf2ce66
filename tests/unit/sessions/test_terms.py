"""A turn's terms are stored whole, and a plain turn's take no room."""

import json

from model.grammar import Grammar, GrammarKind
from sessions.comparison import Change, Comparison
from sessions.terms import PLAIN, Terms
from sessions.tools import Tool, ToolChoice, ToolMode


def test_a_plain_turns_terms_are_empty():
    assert PLAIN.to_stored() == {}
    assert Terms.of_stored({}) == PLAIN


def test_terms_come_back_as_they_were():
    terms = Terms(
        instructions="Be brief.",
        has_reply=False,
        summary="In short.",
        is_parsed=True,
        tools=(Tool(name="f", description="d", strict=True),),
        choice=ToolChoice(mode=ToolMode.REQUIRED, names=frozenset({"f"}), is_parallel=False),
        form=Grammar(kind=GrammarKind.JSON_SCHEMA, text="{}", param="text.format"),
        truncates=True,
        num_dropped_turns=2,
        comparison=Comparison(turn_id="resp_1", num_shared=3, change=Change.TOOLS),
        is_background=True,
        shown={"tools": [{"type": "function"}]},
    )

    assert Terms.of_stored(json.loads(json.dumps(terms.to_stored()))) == terms


def test_what_a_newer_version_added_is_left_out():
    assert Terms.of_stored({"instructions": "x", "newer": 1}) == Terms(instructions="x")
