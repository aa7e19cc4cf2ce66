"""Times what comes back from the tiers: `python -m benchmarks tiers`.

`restore`: from the claim to the first forward pass of a turn whose history is in a tier only, all
checks included, over the bare copy or read of as many bytes in the same run, alternating.

`beside`: the same while somebody else's reply runs, without the bare copy, and the reply's pace.

`returning`: conversations that together need five times the device's pool come back by a Zipf law,
one after the other, to the same engine with its disk tier and without one; the time is what passes
on this side of the engine's process from the request to the first token. Given running servers
(`--splice URL --without-tiers URL --peer NAME=URL …`) it is these that they come back to, over
HTTP, and as peers any that speak OpenAI's chat completions.
"""

import argparse
import asyncio
import itertools
import mmap
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import multiturn, returns
from model.config import CompileMode, EngineConfig, Mode, SamplingParams
from model.engine import Engine
from model.messages import (
    ClaimReport,
    GenerationDelta,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    TierName,
)
from model.tiers.cpu import create_memory

HISTORIES = (1000, 2000, 4000)
BLOCK_SIZE = 16
_POOL_SHARE = 5
_ZIPF_EXPONENT = 1.0
_TIER_BYTES = 4 << 30
REPLY_TOKENS = 4
_BESIDE_TOKENS = 400
"""Of a reply that runs beside: more than come while another conversation does."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Turn:
    """One measured turn."""

    claim: ClaimReport
    claim_s: float
    first_token_s: float
    reply: tuple[int, ...]


def main(arguments: list[str]) -> int:
    """Measure and print. The exit code."""
    options = _parser().parse_args(arguments)
    if options.splice or options.without_tiers or options.peer:
        returns.compare(options)
        return 0
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        config = EngineConfig(
            model=options.model,
            models_dir=options.models_dir,
            mode=Mode(options.mode),
            block_size=BLOCK_SIZE,
            compile=CompileMode.FIRST,  # not beside what is measured
            kv_dir=Path(folder),
            spill_to_cpu_after_s=0.0,
            spill_to_disk_after_s=0.0,
        )
        asyncio.run(_measure(config, options))
    return 0


async def _measure(config: EngineConfig, options: argparse.Namespace) -> None:
    def say(text: str) -> None:
        print(text, flush=True)

    if "restore" in options.parts:
        say("| tier | tokens | bytes | claim to first forward | bare | ratio |")
        say("|---|---|---|---|---|---|")
        for tier in (TierName.CPU, TierName.DISK):
            await measure_restore(config, tier, options.histories, options.repeats, say)
    if "beside" in options.parts:
        say("| tier | tokens | claim to first forward | between the other's tokens |")
        say("|---|---|---|---|")
        for tier in (TierName.CPU, TierName.DISK):
            await measure_beside(config, tier, options.histories, options.repeats, say)
    if "returning" in options.parts:
        await measure_returning(config, options.conversations, options.tokens, options.turns, say)


async def measure_restore(
    config: EngineConfig, tier: TierName, histories: Sequence[int], repeats: int, say: Say
) -> None:
    """Print a row for each length."""
    config = _with_tier(config, tier, max(histories))
    async with _running(config) as engine:
        block_bytes = engine.info.block_bytes
        for num_tokens in histories:
            history = await _begin(engine, num_tokens)
            num_bytes = num_tokens // BLOCK_SIZE * block_bytes
            bare_copy, pairs = _BareCopy(config, tier, num_bytes), []
            for i in range(repeats):
                await engine.evict()
                turn = await _come_back(engine, history, i)
                pairs.append((turn.claim_s, bare_copy.seconds()))
                await _stored(engine)
            ratios = sorted(ours / bare for ours, bare in pairs)
            ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
            say(
                f"| {tier} | {num_tokens:,} | {num_bytes / 1e6:,.0f} MB | {ours * 1e3:.1f} ms "
                f"| {bare * 1e3:.1f} ms | {statistics.median(ratios):.2f} "
                f"({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
            )


async def measure_beside(
    config: EngineConfig, tier: TierName, histories: Sequence[int], repeats: int, say: Say
) -> None:
    """Print a row for each length."""
    config = _with_tier(config, tier, max(histories) + 2 * _BESIDE_TOKENS)
    async with _running(config) as engine:
        for num_tokens in histories:
            history = await _begin(engine, num_tokens)
            claims, paces = [], []
            for i in range(repeats):
                await engine.evict()
                talk = _Talk(engine, f"beside {num_tokens} {i}")
                await talk.begin()
                claims.append((await _come_back(engine, history, i)).claim_s)
                paces.append(await talk.end())
                await _stored(engine)
            claims.sort()
            say(
                f"| {tier} | {num_tokens:,} | {statistics.median(claims) * 1e3:.0f} ms "
                f"({claims[0] * 1e3:.0f} to {claims[-1] * 1e3:.0f}) "
                f"| {statistics.median(paces) * 1e3:.0f} ms |"
            )


class _Talk:
    """Somebody's reply that runs until it is ended."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._times: list[float] = []
        self._is_begun = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """It runs when this returns."""
        self._task = asyncio.create_task(self._listen())
        await self._is_begun.wait()

    async def end(self) -> float:
        """Seconds between its tokens, the median."""
        await self._engine.cancel(self._name)
        assert self._task is not None, "it was begun"
        await self._task
        pauses = [after - before for before, after in itertools.pairwise(self._times)]
        return statistics.median(pauses)

    async def _listen(self) -> None:
        request = GenerationRequest(
            request_id=self._name,
            token_ids=tuple(_token_ids(20, seed=7)),
            params=SamplingParams(
                temperature=0.0, max_output_tokens=_BESIDE_TOKENS, ignore_eos=True
            ),
        )
        async for event in self._engine.generate(request):
            if isinstance(event, GenerationDelta):
                self._times.append(time.perf_counter())
            if len(self._times) > 2:
                self._is_begun.set()


def _with_tier(config: EngineConfig, tier: TierName, num_tokens: int) -> EngineConfig:
    return replace(
        config,
        num_blocks=8 + num_tokens // BLOCK_SIZE,
        disk_tier_bytes=_TIER_BYTES if tier is TierName.DISK else 0,
        cpu_tier_bytes=_TIER_BYTES if tier is TierName.CPU else 0,
    )


async def _begin(engine: Engine, num_tokens: int) -> list[int]:
    """A conversation of that length, stored when this returns; all of its tokens."""
    history = _token_ids(num_tokens, seed=num_tokens)
    first = await _turn(engine, f"first {num_tokens}", history, f"c{num_tokens}")
    await _stored(engine)
    return [*history, *first.reply]


async def _come_back(engine: Engine, history: Sequence[int], number: int) -> Turn:
    """Its next turn, for which all of it is restored."""
    num_tokens = len(history) - REPLY_TOKENS
    turn = await _turn(
        engine,
        f"again {num_tokens} {number}",
        [*history, 5],
        f"c{num_tokens}",
        f"first {num_tokens}",
    )
    restored = turn.claim.from_cpu + turn.claim.from_disk
    # Of a block that is only partly full computing may be quicker.
    assert restored >= num_tokens // BLOCK_SIZE * BLOCK_SIZE, f"only {restored} tokens came back"
    return turn


class _BareCopy:
    """The copy of as many bytes from memory of the CPU tier's own kind, or their read from the disk
    tier's warm files, into memory that is there already. Between two times both lie idle for as
    long as the tier's, so that no more of either is left in the CPU's caches."""

    def __init__(self, config: EngineConfig, tier: TierName, num_bytes: int) -> None:
        self._config = config
        self._target = memoryview(bytearray(b"x") * num_bytes)
        self._source: mmap.mmap | None = None
        if tier is TierName.CPU:
            fd = create_memory(num_bytes)
            self._source = mmap.mmap(fd, num_bytes)
            os.close(fd)
            self._source.write(os.urandom(1 << 20) * (num_bytes >> 20))

    def seconds(self) -> float:
        """How long it takes now."""
        return self._read_s() if self._source is None else self._copy_s(self._source)

    def _copy_s(self, source: mmap.mmap) -> float:
        with memoryview(source) as view:
            begun = time.perf_counter()
            self._target[:] = view
            return time.perf_counter() - begun

    def _read_s(self) -> float:
        assert self._config.kv_dir is not None
        files = sorted(self._config.kv_dir.glob("*/*.kv"))
        begun = time.perf_counter()
        num_read = 0
        for path in files:
            with path.open("rb", buffering=0) as file:
                num_read += file.readinto(self._target[num_read:]) or 0
        seconds = time.perf_counter() - begun
        num_bytes = len(self._target)
        assert num_read == num_bytes, f"{num_read} of {num_bytes} bytes are on disk"
        return seconds


async def measure_returning(
    config: EngineConfig, num_conversations: int, num_tokens: int, num_turns: int, say: Say
) -> None:
    """Print the later turns' times with and without the disk tier, and what was reused."""
    needed = num_conversations * -(-num_tokens // BLOCK_SIZE)
    config = replace(config, num_blocks=needed // _POOL_SHARE, cpu_tier_bytes=0)
    medians = {}
    for name, disk_bytes in (("tier on", _TIER_BYTES), ("tier off", 0)):
        async with _running(replace(config, disk_tier_bytes=disk_bytes)) as engine:
            turns = await _return(engine, num_conversations, num_tokens, num_turns)
        known = sum(t.claim.num_prompt_tokens for t in turns)
        reused = sum(t.claim.num_reused for t in turns)
        medians[name] = statistics.median(t.first_token_s for t in turns)
        say(
            f"{name}: first token p50 {medians[name] * 1e3:.0f} ms, "
            f"{reused / known:.1%} of {known:,} prompt tokens reused"
        )
    say(f"ratio of the medians: {medians['tier on'] / medians['tier off']:.3f}")


async def _return(
    engine: Engine, num_conversations: int, num_tokens: int, num_turns: int
) -> list[Turn]:
    """Begin all conversations, then let people come back; the turns of those."""
    draw = random.Random(1)
    logs: dict[int, list[int]] = {}
    parents: dict[int, str] = {}
    weights = [1 / (rank + 1) ** _ZIPF_EXPONENT for rank in range(num_conversations)]
    coming = draw.choices(range(num_conversations), weights, k=num_turns)
    turns: list[Turn] = []
    for i, who in enumerate([*range(num_conversations), *coming]):
        is_back = who in logs
        new = _token_ids(24 if is_back else num_tokens - 100, seed=1000 + i)
        log = [*logs.get(who, ()), *new]
        turn = await _turn(engine, f"turn {i}", log, f"c{who}", parents.get(who))
        logs[who], parents[who] = [*log, *turn.reply], f"turn {i}"
        if is_back:
            turns.append(turn)
    return turns


async def _turn(
    engine: Engine, name: str, token_ids: Sequence[int], who: str, parent: str | None = None
) -> Turn:
    request = GenerationRequest(
        request_id=name,
        token_ids=tuple(token_ids),
        params=SamplingParams(temperature=0.0, max_output_tokens=REPLY_TOKENS, ignore_eos=True),
        conversation_id=who,
        parent_turn_id=parent,
    )
    begun, first_s, claim = time.perf_counter(), 0.0, None
    async for event in engine.generate(request):
        if isinstance(event, GenerationStarted):
            claim = event.claim
        elif isinstance(event, GenerationDelta):
            first_s = first_s or time.perf_counter() - begun
        elif isinstance(event, GenerationFinished):
            assert claim is not None
            return Turn(claim, event.claim_s, first_s, event.token_ids)
    raise AssertionError("a generation ends")


async def _stored(engine: Engine) -> None:
    """Wait until nothing more is to be spilled."""
    before = -1
    while True:
        (tier,) = (await engine.stats()).tiers
        now = dict(tier.counts).get("spilled", 0)
        if now == before:
            return
        before = now
        await asyncio.sleep(0.8)


class _running:  # noqa: N801 - read as a phrase
    """An engine for as long as the block lasts."""

    def __init__(self, config: EngineConfig) -> None:
        self._engine = Engine(config, on_progress=lambda text: None)

    async def __aenter__(self) -> Engine:
        await self._engine.start()
        return self._engine

    async def __aexit__(self, *exc: object) -> None:
        await self._engine.close()


def _token_ids(num: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(1000, 40_000) for _ in range(num)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks tiers", description=__doc__)
    parser.add_argument("parts", nargs="*", default=["restore", "returning"])
    parser.add_argument("--model", default="default")
    parser.add_argument("--models-dir", type=Path, default=Path("data/models"))
    parser.add_argument("--mode", default="fast", choices=[m.value for m in Mode])
    parser.add_argument("--folder", type=Path, default=None, help="where the disk tier lies")
    parser.add_argument("--histories", type=int, nargs="+", default=list(HISTORIES))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--conversations", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=800, help="of one conversation")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--without-tiers", metavar="URL", help="a running one with its tiers off")
    multiturn.add_options(parser)
    return parser
