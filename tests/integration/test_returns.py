"""Returning conversations against real front ends, at a size that measures nothing."""

import argparse
from contextlib import AsyncExitStack

import pytest

from benchmarks import returns
from benchmarks.workloads import Workload
from tests.support.whole_front import serving_whole

SMALL = Workload(
    name="small",
    num_chats=3,
    num_at_once=1,
    num_turns=2,
    system_words=3,
    is_system_shared=False,
    user_words=2,
    reply_tokens=3,
    returns=True,
)


async def test_servers_with_and_without_tiers_and_peers_get_the_same_chats(tmp_path):
    async with AsyncExitStack() as stack:
        urls = []
        for name in ("with", "without", "peer"):
            (folder := tmp_path / name).mkdir()
            front = await stack.enter_async_context(serving_whole(folder))
            urls.append(front.base_url)
        options = argparse.Namespace(
            splice=urls[0],
            without_tiers=urls[1],
            peer=[("another", urls[2])],
            rounds=2,
            first_round=1,
        )
        memories, rounds = await returns.measure_servers(options, SMALL)

    assert list(rounds) == [returns.WITH, returns.WITHOUT, "another"]
    for measured in rounds.values():
        assert [[(s.chat, s.turn) for s in r.said] for r in measured] == [list(SMALL.order())] * 2
    lines = returns.verdict(rounds, ["another"])
    assert [line.split("÷ ")[1].split(":")[0] for line in lines] == [returns.WITHOUT, "another"]
    # The stand-in for the engine has 64 blocks of one byte, and no tier.
    assert memories[returns.WITH] == returns.Memory(1, 16, 1, memories[returns.WITH].tier_bytes)


def test_nothing_is_concluded_of_peers_alone():
    assert returns.verdict({"another": []}, ["another"]) == []


@pytest.mark.parametrize(
    ("num_tokens", "words"), [(5_120, "0.5 times the pool's 10 MiB"), (51_200, "5.0 times")]
)
def test_the_conversations_are_held_against_the_pool(num_tokens, words):
    memory = returns.Memory(
        block_bytes=16 << 10, block_size=16, pool_bytes=10 << 20, tier_bytes=70 << 20
    )

    assert words in memory.sentence(num_tokens)
    assert memory.sentence(num_tokens).endswith("tiers of 70 MiB")
