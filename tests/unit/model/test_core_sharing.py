"""What sequences share in the engine core, what they must not, and why a turn found less."""

from benchmarks.dense import DenseOracle, tiny_llama
from model.messages import FinishReason, MissReason
from tests.support.tiny_model import Harness, make_request, random_ids


def test_followers_wait_for_a_prefix_that_is_being_computed():
    harness = Harness(tiny_llama(), num_blocks=600, token_budget=64, max_running=64)
    system = random_ids(50, 41)
    for i in range(64):
        request = make_request(f"c{i}", [*system, i], conversation_id=f"c{i}", max_output_tokens=2)
        harness.submit(request)
    harness.run()

    # The ten full blocks once; the eleventh holds one of their tokens, and one of each one's own.
    claims = [reply.claim for reply in harness.replies.values()]
    assert sorted(claim.computed for claim in claims) == [2] * 63 + [42]
    assert harness.runner.num_rows == 42 + 63 * 2 + 64
    alone = Harness(tiny_llama()).generate(make_request("a", [*system, 7], max_output_tokens=2))
    assert harness.replies["c7"].finished.token_ids == alone.finished.token_ids


def test_a_follower_computes_the_prefix_itself_when_its_leader_is_cancelled():
    harness = Harness(tiny_llama(), token_budget=8)
    system = random_ids(51, 40)
    harness.submit(make_request("leader", [*system, 1], conversation_id="l"))
    harness.submit(make_request("follower", [*system, 2], conversation_id="f"))
    harness.step()
    assert harness.replies["follower"].claim is None

    harness.take(harness.core.cancel("leader"))
    harness.run()

    assert harness.replies["follower"].claim.from_device == 8  # what the leader had computed
    DenseOracle(tiny_llama()).assert_greedy(
        [*system, 2], harness.replies["follower"].finished.token_ids
    )


def test_one_who_waits_for_a_prefix_is_overtaken_by_one_who_need_not():
    harness = Harness(tiny_llama(), token_budget=16)
    system = random_ids(52, 40)
    harness.submit(make_request("leader", [*system, 1], conversation_id="l"))
    harness.step()
    harness.submit(make_request("follower", [*system, 2], conversation_id="f"))
    harness.submit(make_request("other", random_ids(53, 3), conversation_id="o"))

    harness.step()
    harness.step()
    harness.step()

    assert harness.replies["other"].claim is not None


def test_a_public_prefix_is_shared_by_owners_and_nothing_behind_it():
    harness = Harness(tiny_llama())
    system = random_ids(54, 18)
    for owner in ("ann", "bob"):
        own = random_ids(55, 12)  # the same words, but each one's own
        harness.generate(
            make_request(
                owner, [*system, *own], conversation_id=None, owner=owner, num_public_tokens=18
            )
        )

    assert harness.replies["bob"].claim.num_reused == 16  # the four full blocks of the prefix


def test_a_conversation_that_changed_its_owner_finds_nothing_and_says_salt():
    harness = Harness(tiny_llama())
    prompt = random_ids(56, 20)
    harness.generate(make_request("a", prompt, owner="ann"))

    reply = harness.generate(
        make_request("b", [*prompt, 1], owner="bob", parent_turn_id="a", num_known_tokens=20)
    )

    assert reply.claim.num_reused == 0
    assert reply.claim.reason is MissReason.SALT


def test_a_changed_fingerprint_and_a_divergence_are_told_apart():
    harness = Harness(tiny_llama())
    prompt = random_ids(57, 20)
    harness.generate(make_request("a", prompt))
    diverged = harness.generate(
        make_request(
            "b",
            [*prompt[:9], 96, 95],
            parent_turn_id="a",
            num_known_tokens=9,
            diverged_at=9,
        )
    )
    changed = harness.generate(
        make_request(
            "c", prompt, parent_turn_id="a", num_known_tokens=20, parent_fingerprint="another"
        )
    )

    assert (diverged.claim.reason, diverged.claim.diverged_at) == (MissReason.DIVERGED, 9)
    assert diverged.claim.num_reused == 9
    assert changed.claim.reason is MissReason.FINGERPRINT_CHANGED


def test_a_thousand_parked_conversations_do_not_keep_a_new_one_out():
    # Room for twenty conversations of six blocks.
    harness = Harness(tiny_llama(), num_blocks=121, token_budget=64, shadow=True)
    for i in range(1000):
        harness.generate(
            make_request(f"p{i}", random_ids(i, 20), conversation_id=f"p{i}", max_output_tokens=2)
        )

    full = harness.generate(
        make_request("full", random_ids(7, 20), conversation_id="new", max_output_tokens=None)
    )

    assert full.finished.reason is FinishReason.LENGTH
    assert len(full.finished.token_ids) == 120 * 4 - 20
    assert full.finished.num_preemptions == 0
