"""What a turn took, from the engine's words."""

import pytest

from model.messages import FinishReason, GenerationFinished
from sessions.measures import to_timing


def finished(num_tokens: int) -> GenerationFinished:
    return GenerationFinished(
        reason=FinishReason.STOP,
        token_ids=tuple(range(num_tokens)),
        text="",
        num_rows_computed=num_tokens,
        first_token_s=1.0,
        total_s=3.0,
    )


@pytest.mark.parametrize(("num_tokens", "num_given", "pace"), [(21, 0, 10), (100, 79, 10)])
def test_the_pace_is_of_the_tokens_that_took_time(num_tokens, num_given, pace):
    timing = to_timing(finished(num_tokens), 0.5, num_given=num_given)

    assert timing.tokens_per_s == pytest.approx(pace)
    assert (timing.first_token_s, timing.total_s) == (1.5, 3.5)


@pytest.mark.parametrize(("num_tokens", "num_given"), [(0, 0), (1, 0), (80, 80), (81, 80)])
def test_a_single_token_has_no_pace(num_tokens, num_given):
    assert to_timing(finished(num_tokens), 0.0, num_given=num_given).tokens_per_s is None
