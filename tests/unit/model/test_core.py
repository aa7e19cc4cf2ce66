"""The engine core on tiny models: turns, sharing, pressure and ends, against the dense oracle."""

import pytest

from benchmarks.dense import VOCAB_SIZE, DenseOracle, tiny_llama, tiny_qwen3
from model.config import SamplingParams
from model.errors import ContextLengthError, EngineBusyError, InvalidGenerationError
from model.messages import FinishReason, MissReason
from tests.support.tiny_model import Harness, backends, make_request, random_ids

CONFIGS = {"llama": tiny_llama, "qwen3": tiny_qwen3}


@pytest.mark.parametrize("backend", ["reference", "batched", "cpu"])
@pytest.mark.parametrize("name", CONFIGS)
def test_ten_turns_compute_only_their_own_tokens_and_equal_the_dense_model(name, backend):
    config = CONFIGS[name]()
    harness, oracle = Harness(config, backend=backends()[backend]), DenseOracle(config)
    log: list[int] = []
    parent, blocks = None, []

    for turn in range(10):
        prompt = [*log, *random_ids(turn, 5 + turn)]
        rows_before = harness.runner.num_rows
        reply = harness.generate(
            make_request(f"turn{turn}", prompt, parent_turn_id=parent, num_known_tokens=len(log))
        )

        reply_ids = list(reply.finished.token_ids)
        oracle.assert_greedy(prompt, reply_ids)
        # The reply's last token was never computed, so it comes with the next turn's own.
        assert reply.claim.num_reused == max(0, len(log) - 1)
        rows = harness.runner.num_rows - rows_before
        assert rows == reply.finished.num_rows_computed == reply.claim.computed + len(reply_ids) - 1
        (table,) = harness.core.tables("conv")
        ids = [block.block_id for block in table.blocks]
        assert ids[: len(blocks)] == blocks
        log, parent, blocks = [*prompt, *reply_ids], f"turn{turn}", ids
    assert oracle.near_ties < 3


def test_regenerate_and_fork_recompute_no_history_and_copy_one_block_at_most():
    config = tiny_llama()
    harness, oracle = Harness(config), DenseOracle(config)
    first = random_ids(1, 9)
    one = harness.generate(make_request("one", first))
    log = [*first, *one.finished.token_ids]
    second = [*log, *random_ids(2, 5)]
    two = harness.generate(
        make_request("two", second, parent_turn_id="one", num_known_tokens=len(log))
    )

    # The parent's own table was taken up by `two`: the sibling shares from there.
    again = harness.generate(
        make_request("again", second, parent_turn_id="one", num_known_tokens=len(log))
    )
    forked_log = [*second, *two.finished.token_ids]
    forked = harness.generate(
        make_request(
            "forked",
            [*forked_log, *random_ids(3, 4)],
            conversation_id="fork",
            parent_turn_id="two",
            origin_conversation_id="conv",
            num_known_tokens=len(forked_log),
        )
    )

    assert again.claim.computed == 1  # all but the prompt's last token lay in `two`'s table
    assert again.finished.token_ids == two.finished.token_ids
    assert forked.claim.num_reused == len(forked_log) - 1
    oracle.assert_greedy([*forked_log, *random_ids(3, 4)], forked.finished.token_ids)
    blocks = {t.turn_id: [b.block_id for b in t.blocks] for t in harness.core.tables("conv")}
    (fork,) = harness.core.tables("fork")
    shared = (len(forked_log) - 1) // 4
    assert [b.block_id for b in fork.blocks][:shared] == blocks["two"][:shared]
    assert all(b.num_holders > 1 for b in fork.blocks[:shared])


def test_sixteen_conversations_in_a_small_pool_equal_running_alone():
    config = tiny_llama()
    prompts = {f"c{i}": random_ids(100 + i, 20 + i) for i in range(16)}
    alone = {}
    for name, prompt in prompts.items():
        harness = Harness(config)
        alone[name] = harness.generate(
            make_request(name, prompt, conversation_id=name, max_output_tokens=20)
        ).finished.token_ids

    crowd = Harness(config, num_blocks=24, token_budget=32)
    for name, prompt in prompts.items():
        crowd.submit(make_request(name, prompt, conversation_id=name, max_output_tokens=20))
    crowd.run()

    assert {n: r.finished.token_ids for n, r in crowd.replies.items()} == alone
    assert crowd.core.stats().preemptions_total > 0
    stats = crowd.core.stats()
    assert stats.blocks_running == 0
    assert stats.blocks_parked + stats.blocks_cached + stats.blocks_empty == 24


def test_dropping_everything_between_turns_changes_no_answer_and_says_evicted():
    config = tiny_qwen3()
    harness, forgetful = Harness(config), Harness(config)
    log: list[int] = []
    parent = None

    for turn in range(4):
        prompt = [*log, *random_ids(turn, 6)]
        request = make_request(f"t{turn}", prompt, parent_turn_id=parent, num_known_tokens=len(log))
        kept, dropped = harness.generate(request), forgetful.generate(request)
        assert kept.finished.token_ids == dropped.finished.token_ids
        assert dropped.claim.num_reused == 0
        assert dropped.claim.reason is (MissReason.EVICTED if turn else MissReason.NEW)
        assert kept.claim.reason is (None if turn else MissReason.NEW)
        forgetful.core.evict(None)
        log, parent = [*prompt, *kept.finished.token_ids], f"t{turn}"


def test_a_stop_string_inside_a_token_keeps_whole_tokens_and_encodes_the_rest_again():
    class PairTokenizer:
        """Each id is two letters, so that a stop string can end in the middle of one; a single
        letter is the id whose second letter is missing."""

        def decode(self, token_ids):
            return "".join(f"{chr(0x1000 + i)}{chr(0x2000 + i)}" for i in token_ids)

        def encode(self, text):
            return [ord(text[0]) - 0x1000]

    config = tiny_llama()
    prompt = random_ids(5, 8)
    free = Harness(config, tokenizer=PairTokenizer()).generate(make_request("free", prompt))
    ids = free.finished.token_ids
    stop = chr(0x2000 + ids[2]) + chr(0x1000 + ids[3])
    harness = Harness(config, tokenizer=PairTokenizer())

    reply = harness.generate(
        make_request(
            "cut", prompt, params=SamplingParams(temperature=0, max_output_tokens=6, stop=(stop,))
        )
    )

    assert reply.finished.reason is FinishReason.STOP
    assert reply.text == free.text[:5] == reply.finished.text
    assert reply.finished.token_ids == (*ids[:2], ids[2])
    (table,) = harness.core.tables("conv")
    assert table.num_computed_tokens <= len(prompt) + 2
    log = [*prompt, *reply.finished.token_ids]
    follow = harness.generate(make_request("next", [*log, 3, 4], parent_turn_id="cut"))
    DenseOracle(config).assert_greedy([*log, 3, 4], follow.finished.token_ids)


def test_a_cancelled_generation_keeps_what_it_has_at_every_step():
    config = tiny_llama()
    prompt = random_ids(9, 40)
    whole = Harness(config).generate(make_request("whole", prompt, max_output_tokens=8))
    for num_steps in range(10):
        harness = Harness(config)
        harness.submit(make_request("cut", prompt, max_output_tokens=8))
        for _ in range(num_steps):
            harness.step()

        harness.take(harness.core.cancel("cut"))

        finished = harness.replies["cut"].finished
        assert finished.reason is FinishReason.CANCELLED
        assert finished.token_ids == whole.finished.token_ids[: len(finished.token_ids)]
        assert not harness.core.has_work
        harness.core.cache.check()
        again = harness.generate(
            make_request("again", prompt, parent_turn_id="cut", max_output_tokens=8)
        )
        assert again.finished.token_ids == whole.finished.token_ids


def test_a_reply_of_no_tokens_and_of_one_end_by_length():
    harness = Harness(tiny_llama())
    prompt = random_ids(3, 7)

    none = harness.generate(make_request("none", prompt, max_output_tokens=0))
    one = harness.generate(make_request("one", prompt, max_output_tokens=1))

    assert (none.finished.token_ids, none.finished.reason) == ((), FinishReason.LENGTH)
    assert none.finished.num_rows_computed == 7
    assert len(one.finished.token_ids) == 1
    assert one.finished.num_rows_computed == 1


def test_a_reply_that_fills_the_context_ends_by_length():
    harness = Harness(tiny_llama(), num_blocks=9)  # 8 · 4 = 32 positions

    reply = harness.generate(make_request("full", random_ids(4, 20), max_output_tokens=None))

    assert reply.finished.reason is FinishReason.LENGTH
    assert len(reply.finished.token_ids) == 12


def test_a_prompt_may_leave_room_for_one_token_and_no_less():
    harness = Harness(tiny_llama(), num_blocks=9)  # 32 positions

    reply = harness.generate(make_request("fits", random_ids(4, 31), max_output_tokens=None))

    assert len(reply.finished.token_ids) == 1
    assert reply.finished.reason is FinishReason.LENGTH
    with pytest.raises(ContextLengthError) as caught:
        harness.submit(make_request("full", random_ids(4, 32)))
    assert caught.value.num_tokens_over == 1


def test_what_can_never_be_served_is_refused_at_once():
    harness = Harness(tiny_llama(), num_blocks=9)
    with pytest.raises(ContextLengthError) as caught:
        harness.submit(make_request("long", random_ids(4, 40)))
    assert caught.value.num_tokens_over == 9
    with pytest.raises(InvalidGenerationError, match="empty"):
        harness.submit(make_request("empty", []))
    with pytest.raises(InvalidGenerationError, match="vocabulary"):
        harness.submit(make_request("odd", [VOCAB_SIZE]))
    assert not harness.core.has_work


def test_the_admission_bound_is_an_error_and_the_waiting_go_on():
    harness = Harness(tiny_llama(), max_waiting=1)
    for i in range(17):  # sixteen can run
        harness.submit(make_request(f"a{i}", random_ids(i, 4)))
    with pytest.raises(EngineBusyError):
        harness.submit(make_request("b", random_ids(2, 4)))
    harness.run()
    assert harness.replies["a16"].finished.reason is FinishReason.LENGTH


def test_an_owner_with_many_turns_does_not_hold_up_another():
    harness = Harness(tiny_llama(), max_running=2)
    for i in range(4):
        harness.submit(make_request(f"a{i}", random_ids(i, 6), conversation_id=None, owner="a"))
    harness.submit(make_request("b", random_ids(8, 6), conversation_id=None, owner="b"))

    harness.step()

    assert harness.replies["b"].claim is not None


def test_owners_do_not_find_each_others_blocks():
    harness = Harness(tiny_llama())
    prompt = random_ids(1, 20)
    harness.generate(make_request("a", prompt, conversation_id=None, owner="ann"))

    same = harness.generate(make_request("b", prompt, conversation_id=None, owner="ann"))
    other = harness.generate(make_request("c", prompt, conversation_id=None, owner="bob"))

    assert same.claim.num_reused == 19
    assert other.claim.num_reused == 0


def test_a_seed_gives_the_same_tokens_whatever_the_batch():
    config = tiny_llama()
    params = SamplingParams(temperature=1.0, seed=11, max_output_tokens=12)
    prompt = random_ids(6, 10)
    alone = Harness(config).generate(make_request("a", prompt, params=params))
    crowd = Harness(config, num_blocks=16)
    for i in range(6):
        crowd.submit(make_request(f"o{i}", random_ids(i, 12), conversation_id=None))
    crowd.submit(make_request("a", prompt, params=params))
    crowd.run()

    assert crowd.replies["a"].finished.token_ids == alone.finished.token_ids


def test_a_turn_past_its_deadline_ends_with_what_it_has():
    harness = Harness(tiny_llama())  # its clock goes on by one with each look at it
    params = SamplingParams(temperature=0, max_output_tokens=200, deadline_s=60)

    reply = harness.generate(make_request("late", random_ids(1, 8), params=params))

    assert reply.finished.reason is FinishReason.DEADLINE
    assert 0 < len(reply.finished.token_ids) < 200
    free = Harness(tiny_llama()).generate(
        make_request("free", random_ids(1, 8), max_output_tokens=200)
    )
    num = len(reply.finished.token_ids)
    assert reply.finished.token_ids == free.finished.token_ids[:num]


def test_the_claim_takes_what_is_between_its_first_try_and_the_first_step():
    harness = Harness(tiny_llama(), num_blocks=4)  # its clock goes on by one with each look at it
    first, second = (make_request(name, random_ids(i, 9)) for i, name in enumerate("ab"))
    harness.submit(first)
    harness.step()  # has the blocks that the other waits for

    waited = harness.generate(second).finished
    quick = harness.generate(make_request("c", random_ids(3, 9))).finished

    assert waited.queue_s > waited.claim_s > quick.claim_s > 0


def test_logprobs_are_those_of_the_plain_model():
    config = tiny_llama()
    params = SamplingParams(temperature=0.9, seed=3, max_output_tokens=6, num_logprobs=4)
    prompt = random_ids(58, 9)
    harness = Harness(config)
    harness.submit(make_request("p", prompt, params=params))
    sampled = []
    while harness.core.has_work:
        outputs = harness.core.step()
        harness.take(outputs)
        sampled += [p for o in outputs for p in getattr(o.event, "logprobs", ())]

    reply = harness.replies["p"].finished.token_ids
    dense = DenseOracle(config).logits([*prompt, *reply]).log_softmax(-1)
    assert [p.sampled.token_id for p in sampled] == list(reply)
    for i, logprobs in enumerate(sampled):
        row = dense[len(prompt) + i - 1]
        assert logprobs.sampled.logprob == pytest.approx(float(row[reply[i]]), abs=1e-4)
        best = row.topk(4)
        assert [t.token_id for t in logprobs.likeliest] == best.indices.tolist()
        assert [t.logprob for t in logprobs.likeliest] == pytest.approx(
            best.values.tolist(), abs=1e-4
        )


def test_tokens_that_an_engine_sampled_before_it_died_are_taken_as_they_are():
    config = tiny_llama()
    params = SamplingParams(temperature=1.0, seed=9, max_output_tokens=12)
    prompt = random_ids(59, 9)
    whole = Harness(config).generate(make_request("w", prompt, params=params))
    ids = whole.finished.token_ids
    for num in range(13):
        resumed = Harness(config).generate(
            make_request("r", prompt, params=params, resumed_ids=ids[:num])
        )
        assert resumed.finished.token_ids == ids
        assert tuple(resumed.sampled) == ids[num:]


def test_n_samples_of_one_prompt_compute_it_once():
    harness = Harness(tiny_llama(), token_budget=64)
    prompt = random_ids(60, 22)
    for i in range(4):
        params = SamplingParams(temperature=1.0, seed=i, max_output_tokens=5)
        harness.submit(make_request(f"n{i}", prompt, params=params))
    harness.run()

    # The first computes the prompt; the others share it but for its last token.
    claims = [reply.claim.computed for reply in harness.replies.values()]
    assert claims[0] == 22
    assert all(computed <= 2 for computed in claims[1:])
    assert len({r.finished.token_ids for r in harness.replies.values()}) > 1


def test_books_that_do_not_balance_are_counted_and_logged_and_stop_nothing(caplog):
    harness = Harness(tiny_llama())
    harness.core.audit()
    assert harness.core.stats().books_failures_total == 0

    harness.core.cache.pool.hold((0,))  # that no table knows of
    harness.core.audit()

    assert harness.core.stats().books_failures_total == 1
    assert "don't balance" in caplog.text
