"""What a turn's terms mean for its reply: what holds it, and how it is taken apart."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Final

from model.config import SamplingParams
from model.engine import Engine, EngineState
from model.grammar import Grammar
from sessions.calling import Calling
from sessions.rendering import Renderer
from sessions.shown_reply import Reading
from sessions.terms import Terms
from sessions.types import Turn

MAX_JUDGING_S: Final = 10.0
"""Compiling takes milliseconds as a rule; whoever stops the server waits for turns that begin."""


async def held(turn: Turn, calling: Calling, engine: Engine) -> SamplingParams:
    """How a turn's reply is drawn: held to the calls or the form that its terms ask for.

    Raises InvalidGenerationError for a form that can't be compiled. While the engine is away, or
    takes longer for it than a turn may be kept from beginning, nobody can tell: then the reply,
    which waits for it as well, fails by its form later.
    """
    grammar = _grammar(turn.terms, calling)
    if grammar is None:
        return turn.params
    if engine.state is EngineState.READY:
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_JUDGING_S):
                await engine.check_grammar(grammar)
    return replace(turn.params, grammar=grammar)


def reading(turn: Turn, renderer: Renderer, ends: Collection[int]) -> Reading | None:
    """How a turn's reply is taken apart; None if it is not. `ends` are the ids that end replies."""
    terms, calling = turn.terms, renderer.calling
    if not terms.is_parsed:
        return None
    is_bound = _grammar(terms, calling) is not None
    return Reading(
        parser=calling.parser(terms.choice.of(terms.tools), is_bound=is_bound),
        unseen=lambda ids: calling.unseen([i for i in ids if i not in ends]),
        spell=renderer.tokens,
    )


def _grammar(terms: Terms, calling: Calling) -> Grammar | None:
    return calling.grammar(terms.tools, terms.choice, terms.form) if terms.has_reply else None
