"""What is said of the cache: each of the engine's words, alone and beside a comparison."""

import pytest

from app.cache_diagnostics import cache_diagnostics
from model.messages import ClaimReport, MissReason
from sessions.comparison import Change, Comparison


def claim(reason=None, reused=30, computed=70):
    return ClaimReport(num_prompt_tokens=100, from_cpu=reused, computed=computed, reason=reason)


def said(told):
    return told["type"], told.get("reason")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (None, ("cache_hit", None)),
        (MissReason.NEW, ("comparison_response_not_found", None)),
        (MissReason.DIVERGED, ("cache_miss", "input_changed")),
        (MissReason.FINGERPRINT_CHANGED, ("cache_miss", "model_changed")),
        (MissReason.EVICTED, ("unavailable", None)),
        (MissReason.SALT, ("unavailable", None)),
        (MissReason.LOAD_FAILED, ("unavailable", None)),
        (MissReason.RECOMPUTE_CHEAPER, ("unavailable", None)),
    ],
)
def test_every_word_of_the_engine_has_one_of_openais(reason, expected):
    told = cache_diagnostics(claim(reason))

    assert said(told) == expected
    assert told["splice_reason"] == reason
    assert told["splice_tiers"] == {"device": 0, "cpu": 30, "disk": 0}
    assert (told["cache_missed_tokens"], told["comparison_reusable_tokens"]) == (70, 30)
    assert told["comparison_response_id"] is None


def test_what_follows_a_response_is_compared_with_it():
    assert cache_diagnostics(claim(), None, "resp_1")["comparison_response_id"] == "resp_1"
    assert said(cache_diagnostics(claim(MissReason.NEW), None, "resp_1")) == ("unavailable", None)


@pytest.mark.parametrize(
    ("change", "word"),
    [(Change.TOOLS, "tools_changed"), (Change.COMPACTED, "context_compacted")],
)
def test_what_changed_beside_the_input_is_why_the_prompt_left_the_history(change, word):
    changed = Comparison(turn_id="resp_1", change=change)

    for reason in (MissReason.NEW, MissReason.DIVERGED):
        assert said(cache_diagnostics(claim(reason), changed, "resp_1")) == ("cache_miss", word)
    # And not of anything else that became of it.
    assert said(cache_diagnostics(claim(), changed, "resp_1")) == ("cache_hit", None)
    evicted = cache_diagnostics(claim(MissReason.EVICTED), changed, "resp_1")
    assert said(evicted) == ("unavailable", None)


@pytest.mark.parametrize(
    ("change", "num_shared", "reason", "expected"),
    [
        (Change.INPUT, 10, None, ("cache_miss", "input_changed")),
        (Change.MODEL, 0, MissReason.NEW, ("cache_miss", "model_changed")),
        (None, 60, None, ("cache_hit", None)),
        (None, 31, MissReason.DIVERGED, ("cache_hit", None)),
        (None, 32, MissReason.EVICTED, ("unavailable", None)),
    ],
)
def test_a_comparison_by_name_goes_by_the_tokens(change, num_shared, reason, expected):
    named = Comparison(turn_id="resp_2", num_shared=num_shared, change=change)

    told = cache_diagnostics(claim(reason), named, "resp_1")

    assert said(told) == expected
    assert told["comparison_response_id"] == "resp_2"
    assert told["comparison_reusable_tokens"] == num_shared
    assert told["cache_missed_tokens"] == 100 - num_shared


def test_a_response_that_is_not_there_is_not_found():
    missing = Comparison(turn_id="resp_2", is_found=False)

    assert said(cache_diagnostics(claim(), missing)) == ("comparison_response_not_found", None)
