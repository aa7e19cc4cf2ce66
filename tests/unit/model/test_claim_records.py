"""Why a turn reused less than it could have."""

from model.claim_records import ClaimRecords
from model.config import SamplingParams
from model.messages import GenerationRequest, MissReason


def explain(
    num_reused, *, known=10, fingerprint="f", diverged_at=None, num_tokens=20, records=None
):
    request = GenerationRequest(
        request_id="r",
        token_ids=tuple(range(num_tokens)),
        params=SamplingParams(),
        conversation_id="conv",
        owner="bob",
        num_known_tokens=known,
        parent_fingerprint=fingerprint,
        diverged_at=diverged_at,
    )
    return (records or ClaimRecords()).explain(request, num_reused, "f")


def test_what_has_no_past_is_new():
    assert explain(0, known=0) == (MissReason.NEW, None)


def test_one_less_than_known_is_everything_there_could_be():
    assert explain(10) == (None, None)
    assert explain(9) == (None, None)
    assert explain(8) == (MissReason.EVICTED, None)


def test_another_model_explains_everything():
    assert explain(0, fingerprint="g") == (MissReason.FINGERPRINT_CHANGED, None)
    assert explain(9, fingerprint=None) == (None, None)


def test_a_prompt_that_leaves_its_history_says_where():
    assert explain(6, diverged_at=6) == (MissReason.DIVERGED, 6)
    assert explain(5, diverged_at=6) == (MissReason.DIVERGED, 6)
    # Less than up to there was lost for another reason, and where it diverged is told all the same.
    assert explain(4, diverged_at=6) == (MissReason.EVICTED, 6)


def test_a_prompt_that_is_cut_back_into_what_is_known_can_reuse_no_more_than_itself():
    assert explain(5, num_tokens=6) == (None, None)
    assert explain(4, num_tokens=6) == (MissReason.EVICTED, None)


def test_what_another_owner_computed_is_salted_away():
    records = ClaimRecords()
    remembered = GenerationRequest(
        request_id="r", token_ids=(1,), params=SamplingParams(), conversation_id="conv", owner="ann"
    )
    records.remember(remembered)

    assert explain(0, records=records) == (MissReason.SALT, None)
    records.forget("conv")
    assert explain(0, records=records) == (MissReason.EVICTED, None)


def test_the_conversation_heard_of_longest_ago_is_forgotten():
    records = ClaimRecords(max_records=2)
    for name in ("conv", "b", "c"):
        records.remember(
            GenerationRequest(
                request_id="r",
                token_ids=(1,),
                params=SamplingParams(),
                conversation_id=name,
                owner="ann",
            )
        )

    assert explain(0, records=records) == (MissReason.EVICTED, None)
