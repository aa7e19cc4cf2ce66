"""Grammars compiled over a tokenizer, and what they let a reply say."""

import threading

import pytest

from model.errors import InvalidGenerationError
from model.grammar import Grammar, GrammarKind
from tests.support.grammars import EOS, make_grammars, regex, schema, tokenizer


def allowed(constraint) -> set[int]:
    mask = constraint.mask()
    return {i for i in range(len(tokenizer())) if mask[i // 8] >> i % 8 & 1}


def ids(text: str) -> list[int]:
    return tokenizer().encode(text, add_special_tokens=False)


def test_an_end_token_may_come_only_where_the_grammar_is_complete():
    constraint = make_grammars().open(regex("[ab]{2}c?"))
    assert EOS not in allowed(constraint)

    for token_id in [*ids("a"), *ids("b")]:
        constraint.take(token_id)

    assert allowed(constraint) == {EOS, *ids("c")}
    assert constraint.is_accepting
    assert not constraint.is_over
    constraint.take(*ids("c"))
    assert constraint.is_over
    assert constraint.error is None


def test_a_token_that_is_forbidden_leaves_an_error_for_good():
    constraint = make_grammars().open(regex("a"))

    constraint.take(*ids("b"))

    assert "satisfy the grammar" in constraint.error
    constraint.take(*ids("a"))
    assert constraint.error is not None


def test_a_fork_goes_its_own_way():
    constraint = make_grammars().open(regex("a(b|c)"))
    constraint.take(*ids("a"))

    other = constraint.fork()
    other.take(*ids("b"))

    assert other.is_over
    assert not constraint.is_over
    assert allowed(constraint) == {*ids("b"), *ids("c")}


@pytest.mark.parametrize(
    "grammar",
    [
        regex("[a"),
        Grammar(kind=GrammarKind.LARK, text="start: missing"),
        Grammar(kind=GrammarKind.JSON_SCHEMA, text="{"),
        Grammar(kind=GrammarKind.JSON_SCHEMA, text="[]"),
        schema({"type": "nonsense"}),
        schema({"type": "string", "minLength": 4, "maxLength": 2}),
        schema({"$ref": "https://example.invalid/schema"}),
        schema(False),
    ],
    ids=lambda grammar: f"{grammar.kind}:{grammar.text[:20]}",
)
def test_what_cannot_be_compiled_is_the_requests_fault(grammar):
    grammars = make_grammars()
    for _ in range(2):  # kept, it is refused again
        with pytest.raises(InvalidGenerationError) as caught:
            grammars.open(grammar)
        assert caught.value.param == "grammar"


def test_a_grammar_is_compiled_in_a_thread_once_and_then_ready():
    grammars, done = make_grammars(), threading.Event()
    grammar = schema({"type": "object"})

    grammars.prepare(grammar, done.set)

    assert done.wait(30)
    assert grammars.is_ready(grammar)
    assert grammars.open(grammar).error is None


def test_what_fails_in_the_thread_is_said_by_open():
    grammars, done = make_grammars(), threading.Event()
    grammar = Grammar(kind=GrammarKind.JSON_SCHEMA, text="{")

    grammars.prepare(grammar, done.set)

    assert done.wait(30)
    with pytest.raises(InvalidGenerationError, match="not JSON"):
        grammars.open(grammar)


def test_what_is_too_deep_is_not_even_tried():
    with pytest.raises(InvalidGenerationError, match="levels deep"):
        make_grammars().prepare(regex("(" * 100), lambda: None)


def test_a_mask_covers_logits_that_are_wider_than_the_vocabulary():
    wide = len(tokenizer()) + 100
    constraint = make_grammars(wide).open(regex("a"))

    assert len(constraint.mask()) * 8 >= wide
    assert allowed(constraint) == set(ids("a"))


def test_a_tokenizer_without_a_fast_form_is_told_of_when_a_grammar_is_asked_for():
    from model.matcher import Grammars

    grammars = Grammars(object(), 10, (1,))  # type: ignore[arg-type] - any other tokenizer

    with pytest.raises(InvalidGenerationError, match="no fast form"):
        grammars.open(regex("a"))
