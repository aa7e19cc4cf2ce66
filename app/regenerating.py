"""How a regenerated reply is drawn."""

from dataclasses import replace

from app.protocol import Sampled
from sessions.types import SamplingParams, Turn


def params_for_regenerate(turn: Turn, body: Sampled) -> SamplingParams:
    """Lay what was sent over how the turn was drawn.

    The turn's own seed is dropped unless one is sent: it would draw the same reply again.
    """
    return body.to_params(replace(turn.params, seed=None))
