"""Rounds of a workload: the same chats sent to every target, one target after the other.

Rounds are interleaved (A B A B …), so that what else the machine does meets all targets alike.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.targets import Chat, Target, TurnTimes
from benchmarks.workloads import Workload

Rounds = dict[str, list["Round"]]
"""A workload's rounds by the target's name, in the order of the rounds."""


@dataclass(frozen=True, slots=True)
class Said:
    """A message with its reply: the chat, the turn's place in it, and how it went."""

    chat: int
    turn: int
    times: TurnTimes


@dataclass(slots=True)
class Round:
    """One workload sent once, and how long it all took.

    `total_s` is the time in which somebody waited for a reply, `said` what was replied to with any
    text.
    """

    said: list[Said] = field(default_factory=list)
    total_s: float = 0.0

    @property
    def later_first_token_s(self) -> float:
        """The median over all turns but the chats' first."""
        return statistics.median(s.times.first_token_s for s in self.said if s.turn)

    @property
    def inter_token_s(self) -> float:
        """The median over the turns."""
        return statistics.median(s.times.inter_token_s for s in self.said)

    @property
    def tokens_per_s(self) -> float:
        """Reply tokens of all chats together."""
        return sum(s.times.num_tokens for s in self.said) / self.total_s

    @property
    def later_reused(self) -> float | None:
        """Which share of the later turns' prompts was reused; None where a target doesn't say."""
        later = [s.times for s in self.said if s.turn]
        if any(t.num_cached is None or not t.num_prompt for t in later):
            return None
        return sum(t.num_cached or 0 for t in later) / sum(t.num_prompt for t in later)

    def num_tokens(self) -> int:
        """What all chats together hold at their ends, each counted whole."""
        held: dict[int, int] = {}
        for s in self.said:
            held[s.chat] = max(held.get(s.chat, 0), s.times.num_prompt + s.times.num_tokens)
        return sum(held.values())


async def measure(
    targets: Mapping[str, Target], workload: Workload, numbers: range, say: Callable[[str], None]
) -> Rounds:
    """Send a workload to all targets, once for each number, on which its words depend. Raises what
    a target does."""
    rounds: Rounds = {name: [] for name in targets}
    for number in numbers:
        for name, target in targets.items():
            measured = await send(target, workload, number)
            rounds[name].append(measured)
            say(
                f"{workload.name} round {number + 1}, {name}: {measured.total_s:.0f} s, later-turn "
                f"first token {measured.later_first_token_s * 1e3:.0f} ms"
            )
    return rounds


async def send(target: Target, workload: Workload, number: int) -> Round:
    """Send a workload once. Raises what the target does."""
    measured = Round()
    chats = [await target.begin(workload.system(i, number)) for i in range(workload.num_chats)]
    begun = time.perf_counter()
    if workload.num_at_once == 1:
        for chat, turn in workload.order():
            await _say(chats[chat], workload, (chat, turn, number), measured)
    else:
        places = asyncio.Semaphore(workload.num_at_once)
        async with asyncio.TaskGroup() as tasks:
            for chat in range(workload.num_chats):
                tasks.create_task(_talk(chats[chat], workload, (chat, number), places, measured))
    measured.total_s = time.perf_counter() - begun
    return measured


async def _talk(
    chat: Chat,
    workload: Workload,
    place: tuple[int, int],
    places: asyncio.Semaphore,
    measured: Round,
) -> None:
    who, number = place
    async with places:
        for turn in range(workload.num_turns):
            await _say(chat, workload, (who, turn, number), measured)


async def _say(
    chat: Chat, workload: Workload, place: tuple[int, int, int], measured: Round
) -> None:
    times = await chat.say(workload.message(*place), workload.reply_tokens)
    if times.token_s:  # a reply without text says nothing of time
        measured.said.append(Said(place[0], place[1], times))
