"""An engine core with real tiers around a tiny model: threads, files, memory as in production."""

import queue
from dataclasses import replace

import pytest
import torch

from benchmarks.dense import DenseOracle, build_model, tiny_llama
from model.assembly import build_core
from model.attention.base import IMPLEMENTATION, register
from model.attention.reference import ReferenceBackend
from model.config import Device, EngineConfig, Mode, SamplingParams
from model.core import EngineCore
from model.errors import ModelLoadError
from model.eviction import EvictionPolicy
from model.messages import GenerationFinished, GenerationRequest, GenerationStarted, TierName
from model.tiers.cpu import create_memory
from tests.support.tier_records import is_anywhere
from tests.support.tiny_model import LetterTokenizer

VOCAB_SIZE = 5
"""Fewer words than a probe at the start has rows."""
PROMPT = (0, 1, 2, 3, 4, 3, 2, 1, 0, 1)


class Life:
    """One engine's, from its start until all it has is stored."""

    def __init__(self, config: EngineConfig) -> None:
        register()
        self.wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.core: EngineCore = build_core(
            config,
            build_model(tiny_llama(VOCAB_SIZE), IMPLEMENTATION),
            ReferenceBackend(),
            LetterTokenizer(),
            identity="tiny",
            eos=(),
            wake=lambda: self.wakes.put(None),
        )

    @property
    def tiers(self) -> list[TierName]:
        return [tier.name for tier in self.core.cache.tiering.tiers()]

    def turn(self, name: str, token_ids, conversation_id="conv", **fields):
        """A turn's claim and the reply's ids."""
        request = GenerationRequest(
            request_id=name,
            token_ids=tuple(token_ids),
            params=SamplingParams(temperature=0.0, max_output_tokens=4),
            conversation_id=conversation_id,
            **fields,
        )
        events = [output.event for output in self.core.submit(request)]
        while self.core.has_work:
            events += [output.event for output in self.core.step()]
            if self.core.is_stalled:
                self.wakes.get(timeout=10)
        (started,) = [e for e in events if isinstance(e, GenerationStarted)]
        (finished,) = [e for e in events if isinstance(e, GenerationFinished)]
        return started.claim, finished.token_ids

    def store(self) -> None:
        self.core.cache.tiering.hurry()
        self.core.tick()
        while self.core.cache.tiering.num_in_flight:
            self.wakes.get(timeout=10)
            self.core.tick()

    def end(self) -> None:
        self.store()
        assert self.core.cache.tiering.close()
        self.core.cache.check()


@pytest.fixture
def config(tmp_path):
    return EngineConfig(
        device=Device.CPU,
        mode=Mode.EXACT,
        num_blocks=40,
        block_size=4,
        kv_dir=tmp_path / "kv",
        disk_tier_bytes=1 << 20,
        check_books=True,
        poison_blocks=True,
    )


@pytest.fixture
def oracle():
    return DenseOracle(tiny_llama(VOCAB_SIZE))


def unknown_costs(life: Life) -> None:
    """Restore whatever there is: a tiny model computes quicker than any disk reads."""
    life.core.cache.tiering.costs._compute = type(life.core.cache.tiering.costs._compute)()


def test_a_conversation_goes_on_exactly_in_the_next_life(config, oracle):
    first = Life(config)
    _, reply = first.turn("one", PROMPT)
    first.end()
    second = Life(config)
    unknown_costs(second)

    log = (*PROMPT, *reply, 2)
    claim, went_on = second.turn("two", log, parent_turn_id="one", num_known_tokens=14)
    second.end()

    assert (claim.from_disk, claim.computed, claim.reason) == (13, 2, None)
    oracle.assert_greedy(list(log), list(went_on))


def test_memory_that_outlives_the_process_has_it_all_the_same(config, oracle):
    config = replace(config, disk_tier_bytes=0, cpu_tier_bytes=1 << 20)
    config = replace(config, cpu_tier_fd=create_memory(config.cpu_tier_bytes))
    first = Life(config)
    _, reply = first.turn("one", PROMPT)
    first.store()  # and then it is gone, without a word
    second = Life(config)
    unknown_costs(second)

    log = (*PROMPT, *reply, 2)
    claim, went_on = second.turn("two", log, parent_turn_id="one", num_known_tokens=14)
    second.end()

    assert (claim.from_cpu, claim.computed) == (13, 2)
    oracle.assert_greedy(list(log), list(went_on))


def test_what_was_given_up_before_its_conversation_was_deleted_is_in_no_file(config):
    """For room: two conversations don't fit, and the tier would have to know whose it was."""
    probe = Life(config)
    record_bytes = probe.core.cache.tiering.tiers()[0].storage.record_bytes()
    probe.end()
    folder = config.kv_dir
    config = replace(
        config,
        disk_tier_bytes=40 * record_bytes,  # 32 live ones, so that there is room for dead ones
        eviction=EvictionPolicy.LRU,
        spill_to_disk_after_s=0.0,
    )
    life = Life(config)
    life.turn("one", PROMPT, conversation_id="first")
    life.store()
    (parked,) = life.core.cache._parked
    carrier = life.core._runner.blocks.carrier()
    blocks = [(b, min(4, 13 - 4 * i)) for i, b in enumerate(parked.table.block_ids)]
    payloads = [bytes(view) for view in carrier.fetch(blocks)]
    assert all(is_anywhere(folder, payload) for payload in payloads)

    life.turn("two", PROMPT[::-1] * 12, conversation_id="second")
    life.store()
    tier = life.core.cache.tiering.tiers()[0]
    assert dict(tier.stats().counts)["evicted"] > 0
    life.core.release("first")
    life.core.tick()
    life.end()

    assert not any(is_anywhere(folder, payload) for payload in payloads)
    assert not is_anywhere(folder, b"first")
    assert is_anywhere(folder, b"second")


def test_what_is_encrypted_is_read_with_its_key_only(config):
    config = replace(config, kv_key="ab" * 32)
    first = Life(config)
    first.turn("one", PROMPT)
    first.end()
    other = Life(replace(config, kv_key="cd" * 32))
    unknown_costs(other)

    claim, _ = other.turn("two", (*PROMPT, 2), parent_turn_id="one", num_known_tokens=11)
    other.end()

    assert claim.from_disk == 0


def test_a_key_that_is_none_stops_the_start(config):
    with pytest.raises(ModelLoadError, match="can't be encrypted"):
        Life(replace(config, kv_key="secret"))


def test_a_medium_that_cannot_be_opened_costs_its_tier_and_no_more(config, oracle):
    config.kv_dir.write_text("a file where the folder should be")

    life = Life(config)
    _, reply = life.turn("one", PROMPT)

    assert life.tiers == []
    oracle.assert_greedy(list(PROMPT), list(reply))


def test_what_the_start_measures_leaves_no_trace(config):
    life = Life(config)

    assert life.core.stats().rows_computed_total == 0
    assert life.core.cache.tiering.costs.compute_s(0, 100) > 0.0
    assert life.core.cache.tiering.costs.restore_s(TierName.DISK, 10) > 0.0
    assert life.core.cache.tiering.stats()[0].num_blocks == 0
    assert torch.isnan(life.core._runner.blocks.layer(0)).all()
    life.end()
