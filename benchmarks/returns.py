"""Conversations that return to running servers by a Zipf law: Splice with its tiers, the same
without, and peers with whatever caches they have.

The memory that each server gets is set on its own command line (docs/benchmarks.md has those of
equal memory); what Splice has, and how much of it the conversations wanted, is asked and told.
"""

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from benchmarks import comparison
from benchmarks.comparison import FIRST_TOKEN
from benchmarks.multiturn import drawer, round_numbers, say, write_raw
from benchmarks.rounds import Rounds, measure, send
from benchmarks.targets import CompletionsTarget, SessionTarget, Target
from benchmarks.workloads import WARM_UP, WORKLOADS, Workload

WORKLOAD = "zipf"
WITH, WITHOUT = "splice, tiers on", "splice, tiers off"


@dataclass(frozen=True, slots=True)
class Memory:
    """What a Splice server keeps keys and values in."""

    block_bytes: int
    block_size: int
    pool_bytes: int
    tier_bytes: int

    @classmethod
    def from_wire(cls, cache: Mapping[str, Any]) -> "Memory":
        """Read what `/v1/cache` answers."""
        return cls(
            block_bytes=cache["block_bytes"],
            block_size=cache["block_size"],
            pool_bytes=cache["cache_bytes"],
            tier_bytes=sum(tier["quota_bytes"] for tier in cache["tiers"]),
        )

    def sentence(self, num_tokens: int) -> str:
        """How it compares with conversations of so many tokens together."""
        wanted = num_tokens * self.block_bytes // self.block_size
        return (
            f"{num_tokens:,} tokens in {wanted / 2**20:,.0f} MiB at the end, "
            f"{wanted / self.pool_bytes:.1f} times the pool's {self.pool_bytes / 2**20:,.0f} MiB; "
            f"tiers of {self.tier_bytes / 2**20:,.0f} MiB"
        )


def compare(options: argparse.Namespace) -> None:
    """Measure, print, draw. Raises what a server does."""
    draw = drawer() if options.plots else None
    workload = WORKLOADS[WORKLOAD]
    memories, rounds = asyncio.run(measure_servers(options, workload))
    print(comparison.report(workload, rounds, [name for name, _ in options.peer]))
    for line in verdict(rounds, [name for name, _ in options.peer]):
        print(line)
    for name, memory in memories.items():
        print(f"- {name}: {memory.sentence(rounds[name][-1].num_tokens())}")
    if draw:
        print(f"\n![{workload.name}]({draw(workload, rounds, options.plots)})")
    if options.json:
        write_raw(options.json, [(workload, rounds)])


async def measure_servers(
    options: argparse.Namespace, workload: Workload
) -> tuple[dict[str, Memory], Rounds]:
    """The memory of each Splice server, and all servers' rounds. Raises what a server does."""
    splices = {WITH: options.splice, WITHOUT: options.without_tiers}
    urls = {name: url for name, url in splices.items() if url}
    targets: dict[str, Target] = {name: SessionTarget(url) for name, url in urls.items()}
    targets |= {name: CompletionsTarget(url) for name, url in options.peer}
    try:
        memories = {name: await _ask_memory(url) for name, url in urls.items()}
        for target in targets.values():
            await send(target, WARM_UP, 0)
        return memories, await measure(targets, workload, round_numbers(options), say)
    finally:
        for target in targets.values():
            await target.close()


async def _ask_memory(url: str) -> Memory:
    async with (
        aiohttp.ClientSession(raise_for_status=True) as http,
        http.get(f"{url.rstrip('/')}/v1/cache") as answer,
    ):
        return Memory.from_wire(await answer.json())


def verdict(rounds: Rounds, peers: list[str]) -> list[str]:
    """Splice's later turns over those of the same server without tiers, and of the best peer."""
    if WITH not in rounds:
        return []
    others = [WITHOUT] if WITHOUT in rounds else []
    if peers:
        others.append(FIRST_TOKEN.best(rounds, peers))
    return [
        f"\n{FIRST_TOKEN.title}, {WITH} ÷ {other}: "
        + comparison.spread(FIRST_TOKEN.ratios(rounds[WITH], rounds[other]))
        for other in others
    ]
