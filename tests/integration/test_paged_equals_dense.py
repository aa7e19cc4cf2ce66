"""Oracle 1 on the embedded model in `exact` mode: whatever was cached, shared, batched, preempted,
rewound or evicted, each reply is what transformers' plain forward over the whole list gives.

The books are checked after every step, and blocks that nobody may read are filled with NaN.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from benchmarks.dense import DenseOracle
from benchmarks.driver import Prompt, run_together
from model.assembly import assemble
from model.config import Device, EngineConfig, Mode
from model.weights import load_model
from tests.support.live_server import MODELS

pytestmark = pytest.mark.timeout(300)

NUM_BLOCKS, REPLY_TOKENS = 15, 12
OPENING = "<|im_start|>system\nYou are brief.<|im_end|>"
TURN = "\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


class Chats:
    """Turns on one core, each checked against the plain forward; a log of ids for each."""

    def __init__(self, core, oracle, tokenizer):
        self._core = core
        self._oracle = oracle
        self._tokenizer = tokenizer
        self.logs = {}
        self.num_reused = 0

    def encode(self, text):
        return self._tokenizer.encode(text, add_special_tokens=False)

    def opening(self, conversation, question):
        ids = self.encode(OPENING + TURN.format(question))
        return Prompt(name=f"{conversation}1", conversation=conversation, token_ids=ids)

    def behind(self, parent, name, question, **changes):
        ids = self.logs[parent] + self.encode("<|im_end|>" + TURN.format(question))
        values = {"conversation": name[0], "parent": parent, **changes}
        return Prompt(name=name, token_ids=ids, **values)

    def run(self, *prompts):
        for prompt, done in zip(
            prompts, run_together(self._core, prompts, REPLY_TOKENS), strict=True
        ):
            assert len(done.token_ids) == REPLY_TOKENS
            self._oracle.assert_greedy(prompt.token_ids, done.token_ids)
            self.logs[prompt.name] = [*prompt.token_ids, *done.token_ids]
            self.num_reused += done.claim.num_reused


@pytest.fixture(scope="module")
def core_and_info():
    config = EngineConfig(
        models_dir=MODELS,
        device=Device.CPU,
        mode=Mode.EXACT,
        num_blocks=NUM_BLOCKS,
        token_budget=48,  # so that longer prompts come in chunks, between others' tokens
        check_books=True,
        poison_blocks=True,
    )
    return assemble(config, lambda _: None)


def test_any_interleaving_of_turns_gives_what_a_plain_forward_gives(core_and_info):
    core, info = core_and_info
    plain = load_model(Path(info.tokenizer_path), torch.float32, torch.device("cpu"), "eager")
    oracle = DenseOracle(plain)
    tokenizer = AutoTokenizer.from_pretrained(info.tokenizer_path, local_files_only=True)
    chats = Chats(core, oracle, tokenizer)
    a, b, c, d = ("the sea", "the capital of Norway", "a poem, in German", "2 + 2, in words")

    chats.run(*(chats.opening(name, text) for name, text in zip("abcd", (a, b, c, d), strict=True)))
    chats.run(*(chats.behind(f"{name}1", f"{name}2", "And then?") for name in "abcd"))
    chats.run(
        chats.behind("a2", "a3", "A long list, please: " + "one, two, three, and so on, " * 8),
        chats.behind("b2", "b3", "Why?"),
        chats.behind("c1", "f1", "And in French?", conversation="f", origin="c"),
    )
    # Again what d was asked last, what a was asked first, and b from the middle of its reply.
    chats.run(
        replace(chats.behind("d1", "d4", "And then?"), parent="d2"),
        replace(chats.opening("a", a), name="a4"),
        Prompt(name="b4", conversation="b", parent="b2", token_ids=chats.logs["b2"][:-3]),
    )
    core.evict(None)
    chats.run(chats.behind("a3", "a5", "Shorter."), chats.behind("f1", "f2", "Danke."))
    chats.run(chats.behind("a5", "a6", "Thanks."))

    stats = core.stats()
    blocks = (stats.blocks_running, stats.blocks_parked, stats.blocks_cached, stats.blocks_empty)
    print(
        f"{REPLY_TOKENS * len(chats.logs)} tokens, {oracle.near_ties} near ties, "
        f"{chats.num_reused} reused, {stats.preemptions_total} preemptions, "
        f"{stats.evicted_blocks_total} blocks evicted"
    )
    assert stats.preemptions_total > 0
    assert stats.evicted_blocks_total > 0
    assert chats.num_reused > 300
    assert sum(blocks) == NUM_BLOCKS
