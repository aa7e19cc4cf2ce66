"""What a turn's terms mean for its reply: what holds it, and how it is taken apart."""

from collections.abc import Collection
from dataclasses import replace

from model.config import SamplingParams
from model.grammar import Grammar
from sessions.calling import Calling
from sessions.shown_reply import Reading
from sessions.terms import Terms
from sessions.types import Turn


def held(turn: Turn, calling: Calling) -> SamplingParams:
    """How a turn's reply is drawn: held to the form that its terms ask for."""
    if not turn.terms.has_reply:
        return turn.params
    grammar = _form_of(turn.terms, calling)
    return turn.params if grammar is None else replace(turn.params, grammar=grammar)


def reading(turn: Turn, calling: Calling, ends: Collection[int]) -> Reading | None:
    """How a turn's reply is taken apart; None if it is not. `ends` are the ids that end replies."""
    terms = turn.terms
    if not terms.is_parsed:
        return None
    is_bound = _form_of(terms, calling) is not None
    return Reading(
        parser=calling.parser(terms.choice.of(terms.tools), is_bound=is_bound),
        unseen=lambda ids: calling.unseen([i for i in ids if i not in ends]),
    )


def _form_of(terms: Terms, calling: Calling) -> Grammar | None:
    """What a reply is held to: the form of an answer or calls, whichever the terms allow."""
    return calling.grammar(terms.tools, terms.choice, terms.form)
