"""Any interleaving of turns, siblings, forks, cancels, evictions and steps: each reply equals what
would follow without a cache, and the books balance after every operation."""

from dataclasses import replace
from functools import partial
from itertools import count

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from benchmarks.dense import DenseOracle, build_model, tiny_llama
from model.attention.base import IMPLEMENTATION, register
from model.attention.reference import ReferenceBackend
from model.cache_manager import CacheManager
from model.config import EngineConfig, SamplingParams
from model.core import EngineCore
from model.costs import CostModel
from model.errors import ContextLengthError, EngineBusyError
from model.eviction import EvictionPolicy
from model.kv_cache import KVCache
from model.messages import (
    FinishReason,
    GenerationDelta,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    TierName,
)
from model.ports import CoreLimits
from model.prefix_index import BlockHasher
from model.runner import ModelRunner, ModelShape
from model.spills import SpillConfig
from model.tiering import TierSetup
from model.tiers.tier import Tier
from model.worth import Worth
from tests.support.memory_storage import ManualRunner, MemoryStorage
from tests.support.shadow_runner import ShadowRunner
from tests.support.tiny_model import LetterTokenizer

VOCAB_SIZE, BLOCK_SIZE, NUM_BLOCKS = 5, 4, 10
# Few different tokens, so that prompts meet again after their blocks were reused.
new_tokens = st.lists(st.integers(0, 1), min_size=0, max_size=9)
replies = st.integers(0, 7)
stops = st.integers(0, 5)


class EngineCoreMachine(RuleBasedStateMachine):
    turns = Bundle("turns")

    def __init__(self):
        super().__init__()
        self.ticks = count()
        self.num_rows_before_crashes = 0
        self._start()
        self.ids = count()
        self.requests: dict[str, GenerationRequest] = {}
        self.logs: dict[str, list[int]] = {}
        self.delivered: dict[str, list[int]] = {}

    def _start(self):
        """A new engine, with nothing in its cache."""
        self.runner = self.build_runner()
        self.core = EngineCore(
            EngineConfig(token_budget=11, max_running=4, max_waiting=6, check_books=True),
            CoreLimits(
                max_context_tokens=(NUM_BLOCKS - 1) * BLOCK_SIZE,
                vocab_size=VOCAB_SIZE,
                eos_token_ids=frozenset(),
                block_bytes=1,
            ),
            CacheManager(
                NUM_BLOCKS,
                BlockHasher("shadow", "none", BLOCK_SIZE),
                setup=self.tier_setup(),
                poison_blocks=True,
            ),
            self.runner,
            LetterTokenizer(),
            clock=self.clock,
        )

    def clock(self):
        """A look at the clock takes a twentieth of a second."""
        return next(self.ticks) * 0.05

    def build_runner(self):
        return ShadowRunner(BLOCK_SIZE, VOCAB_SIZE)

    def tier_setup(self):
        """No tiers here."""
        return

    def step_once(self):
        """One step, and all that others do meanwhile."""
        self._take(self.core.step())

    def expected_reply(self, prompt, num_tokens):
        return self.runner.reply(prompt, num_tokens)

    @rule(target=turns, new=new_tokens, num=replies, owner=st.sampled_from("ab"), stop=stops)
    def begin(self, new, num, owner, stop):
        return self._submit([0], new, num, f"conv{next(self.ids)}", owner, stop=stop)

    @rule(target=turns, turn=turns, num=replies)
    def regenerate(self, turn, num):
        """The same prompt again."""
        request = self.requests[turn]
        log, parent = list(request.token_ids), request.parent_turn_id
        conversation = request.conversation_id
        return self._submit(log[:-1], log[-1:], num, conversation, request.owner, parent)

    @rule(target=turns, parent=turns, new=new_tokens, num=replies, stop=stops)
    def go_on(self, parent, new, num, stop):
        """A next turn, or a sibling of one that went on from here before."""
        self._settle(parent)
        request = self.requests[parent]
        return self._submit(
            self.logs[parent],
            new,
            num,
            request.conversation_id,
            request.owner,
            parent,
            stop=stop,
        )

    @rule(target=turns, parent=turns, new=new_tokens, num=replies)
    def fork(self, parent, new, num):
        self._settle(parent)
        origin = self.requests[parent]
        name = f"conv{next(self.ids)}"
        return self._submit(
            self.logs[parent], new, num, name, origin.owner, parent, origin.conversation_id
        )

    @rule(target=turns, parent=turns, keep=st.integers(1, 40), new=new_tokens, num=replies)
    def diverge(self, parent, keep, new, num):
        """A turn whose prompt leaves its parent's log somewhere."""
        self._settle(parent)
        request = self.requests[parent]
        log = self.logs[parent][:keep]
        return self._submit(log, new, num, request.conversation_id, request.owner, parent)

    @rule(new=new_tokens, num=replies)
    def complete_without_a_conversation(self, new, num):
        self._submit([1], new * 2, num, None, "a")

    @rule(num=st.integers(1, 6))
    def step(self, num):
        for _ in range(num):
            self.step_once()

    @rule()
    def run_until_idle(self):
        while self.core.has_work:
            self.step_once()

    @rule(turn=turns)
    def cancel(self, turn):
        self._take(self.core.cancel(turn))

    @rule(turn=turns)
    def evict(self, turn):
        self.core.evict(self.requests[turn].conversation_id)

    @rule(turn=consumes(turns))
    def release(self, turn):
        self.core.release(self.requests[turn].conversation_id)

    @rule()
    def evict_everything(self):
        self.core.evict(None)

    @rule()
    def crash(self):
        """The process dies; a new one goes on with what was in flight."""
        self._start()
        for name, request in self.requests.items():
            if name not in self.logs:
                resumed = replace(request, resumed_ids=tuple(self.delivered[name]))
                self._take(self.core.submit(resumed))

    @invariant()
    def books_balance(self):
        self.core.cache.check()

    def teardown(self):
        while self.core.has_work:
            self.step_once()
        assert set(self.logs) == set(self.requests)
        stats = self.core.stats()
        assert stats.blocks_running == 0
        assert stats.rows_computed_total == self.runner.num_rows
        self.core.cache.check()

    def _settle(self, turn):
        """Only an ended turn can be a parent."""
        while turn not in self.logs:
            self.step_once()

    def _submit(self, log, new, num, conversation, owner, parent=None, origin=None, *, stop=0):
        name = f"turn{next(self.ids)}"
        prompt = [*log, *new]
        # Letters that will come up: the first wait in computed blocks until the last decides.
        coming = self.expected_reply(prompt, 9)[stop : stop + 3]
        stops = (LetterTokenizer().decode(coming),) if stop else ()
        request = GenerationRequest(
            request_id=name,
            token_ids=tuple(prompt),
            params=SamplingParams(temperature=0.0, max_output_tokens=num, stop=stops),
            owner=owner,
            conversation_id=conversation,
            parent_turn_id=parent,
            origin_conversation_id=origin,
            num_known_tokens=len(log),
        )
        try:
            self.core.submit(request)
        except (ContextLengthError, EngineBusyError):
            self.logs[name] = [0]
        self.requests[name] = request
        self.delivered[name] = []
        return name

    def _take(self, outputs):
        for output in outputs:
            request = self.requests[output.request_id]
            if isinstance(output.event, GenerationStarted):
                claim = output.event.claim
                assert claim.num_reused + claim.computed == len(request.token_ids)
                # One token is always computed; of one that goes on it may be the reply's.
                assert claim.computed >= (0 if self.delivered[output.request_id] else 1)
            elif isinstance(output.event, GenerationDelta):
                self.delivered[output.request_id] += output.event.token_ids
            elif isinstance(output.event, GenerationFinished):
                self._check_reply(request, output.event)
                self.logs[output.request_id] = [*request.token_ids, *output.event.token_ids]

    def _check_reply(self, request, finished):
        expected = self.expected_reply(request.token_ids, len(finished.token_ids) + 3)
        num = len(finished.token_ids)
        assert list(finished.token_ids) == expected[:num]
        assert finished.text == LetterTokenizer().decode(expected[:num])
        if finished.reason is FinishReason.STOP:
            (stop,) = request.params.stop
            assert LetterTokenizer().decode(expected[num : num + 3]) == stop
        assert not any(s in finished.text for s in request.params.stop)


class TieredMachine(EngineCoreMachine):
    """The same with a tier of host memory and one of disk, whose media fill up, break, damage what
    they have, answer late, and outlive the engine."""

    def __init__(self):
        self.media = [MemoryStorage(TierName.CPU, 12), MemoryStorage(TierName.DISK, 30)]
        super().__init__()

    def tier_setup(self):
        costs = CostModel(BLOCK_SIZE, 1)
        worth = Worth(EvictionPolicy.VALUE, costs, BLOCK_SIZE, 1, self.clock)
        self.runners = [ManualRunner(medium, self.runner.blocks) for medium in self.media]
        tiers = tuple(
            Tier(
                runner,
                runner.storage,
                max_records=runner.storage.quota_bytes - 2,
                block_size=BLOCK_SIZE,
                worth=partial(worth.of_record, runner.storage.name),
                clock=self.clock,
            )
            for runner in self.runners
        )
        worth.tiers = tiers
        for tier, medium in zip(tiers, self.media, strict=True):
            tier.rebuild(medium.open(), list(medium.holds.values()))
        spill = SpillConfig(cpu_after_s=1.0, disk_after_s=3.0)
        return TierSetup(costs=costs, worth=worth, tiers=tiers, spill=spill, wall_clock=self.clock)

    def step_once(self):
        super().step_once()
        if self.core.is_stalled:
            for runner in self.runners:
                runner.run(1)

    @rule(which=st.sampled_from([0, 1]), num=st.integers(1, 5))
    def move_blocks(self, which, num):
        self.runners[which].run(num)

    @rule(num=st.integers(1, 30))
    def idle(self, num):
        for _ in range(num):
            self.core.tick()

    @rule(is_kept=st.booleans())
    def store_everything(self, is_kept):
        """Everybody goes for lunch."""
        for _ in range(30):
            self.core.tick()
            for runner in self.runners:
                runner.run()
        if not is_kept:
            self.core.evict(None)

    @rule(turn=EngineCoreMachine.turns, tier=st.sampled_from([TierName.CPU, TierName.DISK]))
    def park(self, turn, tier):
        self.core.park(self.requests[turn].conversation_id, tier)

    @rule(which=st.sampled_from([0, 1]), place=st.integers(0, 100))
    def damage(self, which, place):
        medium = self.media[which]
        if keys := list(medium.records):
            medium.damaged.add(keys[place % len(keys)])

    @rule(which=st.sampled_from([0, 1]), is_full=st.booleans(), is_broken=st.booleans())
    def spoil(self, which, is_full, is_broken):
        self.media[which].is_full, self.media[which].is_broken = is_full, is_broken

    @rule(which=st.sampled_from([0, 1]))
    def verify(self, which):
        self.core.cache.tiering.tiers()[which].verify(lambda num_damaged: None)

    def teardown(self):
        super().teardown()
        for medium in self.media:
            medium.is_full = medium.is_broken = False
        for conversation in {r.conversation_id for r in self.requests.values()} - {None}:
            self.core.release(conversation)
        self.ticks = count(1_000_000)  # whatever is off is on again
        for _ in range(10):
            self.core.tick()
            for runner in self.runners:
                runner.run()
        # Deleted conversations leave nothing, and what is left is not held.
        assert not any(medium.holds or medium.records for medium in self.media)
        assert self.core.cache.pool.num_free == NUM_BLOCKS


class DenseMachine(TieredMachine):
    """The same with a real model, held against plain forwards over whole token lists."""

    oracle = DenseOracle(tiny_llama(VOCAB_SIZE))

    def build_runner(self):
        register()
        model = build_model(tiny_llama(VOCAB_SIZE), IMPLEMENTATION)
        shape = ModelShape.of(model)
        cache = KVCache(shape.kv_shape(BLOCK_SIZE, torch.float32), NUM_BLOCKS, model.device)
        cache.poison()
        return ModelRunner(model, shape.windows, cache, ReferenceBackend())

    def expected_reply(self, prompt, num_tokens):
        token_ids = list(prompt)
        for _ in range(num_tokens):
            token_ids.append(int(self.oracle.logits(token_ids)[-1].argmax()))
        return token_ids[len(prompt) :]


def machine(cls, num_examples):
    cls.TestCase.settings = settings(
        max_examples=num_examples,
        stateful_step_count=40,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return cls.TestCase


TestEngineCore = pytest.mark.timeout(300)(machine(EngineCoreMachine, 150))
TestTiered = pytest.mark.timeout(300)(machine(TieredMachine, 200))
TestDense = pytest.mark.timeout(300)(machine(DenseMachine, 8))


class LongDenseMachine(DenseMachine):
    """Ten thousand operations: an example has some 35 of its 40."""


TestLongDense = pytest.mark.full(pytest.mark.timeout(1800)(machine(LongDenseMachine, 300)))
