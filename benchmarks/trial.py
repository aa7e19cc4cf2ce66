"""One architecture's trial: everything that can happen to a conversation, against the dense model.

Ten turns, regenerate, fork, rewind, eviction, and a crowd in a pool that is too small for it, so
that chunks, preempted and decoding sequences meet in one batch. Every prompt is longer than a step
takes, most histories are several windows long, and the crowd's lengths lie around the boundaries of
windows and blocks. Books are checked after each step and blocks that nobody may read hold NaN.
"""

import random
from dataclasses import dataclass

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from benchmarks.dense import VOCAB_SIZE, DenseOracle, build_model
from benchmarks.driver import Measured, Prompt, RawTokenizer, run, run_together
from benchmarks.tiny_configs import WINDOW
from model.assembly import build_core
from model.attention.base import IMPLEMENTATION, AttentionBackend, register
from model.config import EngineConfig
from model.core import EngineCore

BLOCK_SIZE = 4
TOKEN_BUDGET = 16
NUM_TURNS = 10
REPLY_TOKENS = 6
_CROWD = sorted(
    {n + i for n in (WINDOW, 2 * WINDOW, BLOCK_SIZE, 8 * BLOCK_SIZE) for i in (-1, 0, 1)}
)
_CROWD_BLOCKS = 26
"""For twelve prompts of 3 to 33 tokens and their replies: enough for about four of them."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many tokens of replies were compared, and how many of them were too near to tell."""

    num_tokens: int
    near_ties: int


class Trial:
    """A tiny random model with its oracle. Whatever differs raises AssertionError."""

    def __init__(
        self,
        config: PreTrainedConfig,
        backend: AttentionBackend,
        device: torch.device | None = None,
    ) -> None:
        register()
        self._oracle = DenseOracle(config, device)
        self._model: PreTrainedModel = build_model(config, IMPLEMENTATION, device)
        self._backend = backend
        self._ids = random.Random(3)
        self._num_tokens = 0

    def run(self) -> Verdict:
        """Raises ModelLoadError when the model is refused."""
        core = self._core(num_blocks=160)
        logs = self._take_turns(core)
        self._branch(core, logs)
        self._forget(core, logs)
        self._crowd(self._core(num_blocks=_CROWD_BLOCKS))
        return Verdict(self._num_tokens, self._oracle.near_ties)

    def _core(self, num_blocks: int) -> EngineCore:
        config = EngineConfig(
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            token_budget=TOKEN_BUDGET,
            check_books=True,
            poison_blocks=True,
        )
        return build_core(
            config, self._model, self._backend, RawTokenizer(), identity="tiny", eos=()
        )

    def _take_turns(self, core: EngineCore) -> list[list[int]]:
        """The log behind each turn; the first is empty."""
        logs: list[list[int]] = [[]]
        for i in range(NUM_TURNS):
            parent = f"t{i - 1}" if i else None
            prompt = Prompt(name=f"t{i}", token_ids=self._more(logs[-1], 7 + i), parent=parent)
            logs.append(self._turn(core, prompt, num_reused=max(0, len(logs[-1]) - 1)))
        return logs

    def _branch(self, core: EngineCore, logs: list[list[int]]) -> None:
        last, parent = logs[-1], f"t{NUM_TURNS - 1}"
        again = Prompt(name="again", token_ids=last[:-REPLY_TOKENS], parent=f"t{NUM_TURNS - 2}")
        assert self._turn(core, again, num_reused=len(last) - REPLY_TOKENS - 1) == last
        fork = Prompt(
            name="fork",
            token_ids=self._more(last, 5),
            conversation="fork",
            parent=parent,
            origin="c",
        )
        self._turn(core, fork, num_reused=len(last) - 1)
        # The next turn took up the parent's own table, and computed the last token of its reply.
        rewind = Prompt(name="rewind", token_ids=self._more(logs[3], 9), parent="t2")
        self._turn(core, rewind, num_reused=len(logs[3]))

    def _forget(self, core: EngineCore, logs: list[list[int]]) -> None:
        core.evict(None)
        prompt = Prompt(name="f", token_ids=self._more(logs[-1], 3), parent=f"t{NUM_TURNS - 1}")
        self._turn(core, prompt, num_reused=0)

    def _crowd(self, core: EngineCore) -> None:
        prompts = [
            Prompt(name=f"c{size}", token_ids=self._more([], size), conversation=f"c{size}")
            for size in _CROWD
        ]
        for prompt, result in zip(prompts, run_together(core, prompts, 2 * WINDOW), strict=True):
            self._compare(prompt, result)
        assert core.stats().preemptions_total > 0, "nobody had to make room"

    def _turn(self, core: EngineCore, prompt: Prompt, num_reused: int) -> list[int]:
        result = run(core, prompt, REPLY_TOKENS)
        self._compare(prompt, result)
        reused = result.claim.num_reused
        assert reused == num_reused, f"{prompt.name}: {reused} reused, not {num_reused}"
        return [*prompt.token_ids, *result.token_ids]

    def _compare(self, prompt: Prompt, result: Measured) -> None:
        self._oracle.assert_greedy(prompt.token_ids, result.token_ids)
        self._num_tokens += len(result.token_ids)

    def _more(self, log: list[int], count: int) -> list[int]:
        return log + [self._ids.randrange(VOCAB_SIZE) for _ in range(count)]
