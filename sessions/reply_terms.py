"""What a turn's terms mean for its reply: what holds it, and how it is taken apart."""

from collections.abc import Collection
from dataclasses import replace

from model.config import SamplingParams
from sessions.calling import Calling
from sessions.shown_reply import Reading
from sessions.tools import ToolMode
from sessions.types import Turn


def held(turn: Turn, calling: Calling) -> SamplingParams:
    """How a turn's reply is drawn: held to the form that its terms ask for."""
    terms = turn.terms
    if not terms.has_reply:
        return turn.params
    grammar = calling.grammar(terms.tools, terms.choice)
    if grammar is None and terms.form is not None:
        grammar = calling.form_of_answer(terms.form)
    return turn.params if grammar is None else replace(turn.params, grammar=grammar)


def reading(turn: Turn, calling: Calling, ends: Collection[int]) -> Reading | None:
    """How a turn's reply is taken apart; None if it is not. `ends` are the ids that end replies."""
    terms = turn.terms
    if not terms.is_parsed:
        return None
    is_bound = terms.form is not None or terms.choice.mode is ToolMode.REQUIRED
    return Reading(
        parser=calling.parser(terms.choice.of(terms.tools), is_bound=is_bound),
        unseen=lambda ids: calling.unseen([i for i in ids if i not in ends]),
    )
