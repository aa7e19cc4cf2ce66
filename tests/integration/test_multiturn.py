"""The multi-turn benchmark against a real front end, at a size that measures nothing."""

from collections import Counter

import pytest

from benchmarks import multiturn
from benchmarks.targets import CompletionsTarget, SessionTarget
from benchmarks.workloads import WORKLOADS, Workload, words
from tests.support.whole_front import serving_whole

SMALL = Workload(
    name="small",
    num_chats=2,
    num_at_once=2,
    num_turns=2,
    system_words=3,
    is_system_shared=True,
    user_words=2,
    reply_tokens=3,
)


@pytest.mark.parametrize("kind", [SessionTarget, CompletionsTarget])
async def test_each_way_of_talking_is_measured_turn_by_turn(tmp_path, kind):
    async with serving_whole(tmp_path) as front:
        target = kind(str(front.client.make_url("/")).rstrip("/"))
        measured = await multiturn.send(target, SMALL, 0)
        await target.close()

    assert Counter(turn for turn, _ in measured.turns) == {0: 2, 1: 2}
    assert all(t.first_token_s > 0 and t.text for _, t in measured.turns)
    assert measured.total_s > 0


async def test_the_report_compares_with_the_first_target(tmp_path):
    async with serving_whole(tmp_path) as front:
        target = SessionTarget(str(front.client.make_url("/")).rstrip("/"))
        rounds = [await multiturn.send(target, SMALL, n) for n in range(2)]
        await target.close()

    text = multiturn.report(SMALL, {"a": rounds, "b": rounds})

    assert "| | a | b |" in text
    assert text.count("; 1.00 x |") == len(multiturn.FIGURES)


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda w: w.name)
def test_a_workload_sends_every_turn_of_a_chat_in_order(workload):
    seen = Counter()
    for chat, turn in workload.order():
        assert turn == seen[chat]
        seen[chat] += 1

    assert seen.total() == workload.num_chats * workload.num_turns


def test_words_depend_on_nothing_but_the_seed():
    assert words(30, "a") == words(30, "a") != words(30, "b")
    assert len(words(30, "a").split()) == 30


def test_without_a_server_or_with_an_unknown_workload_it_says_what_to_do(capsys):
    assert multiturn.main([]) == 2
    assert "--splice" in capsys.readouterr().err
    assert multiturn.main(["W9", "--splice", "http://x"]) == 2
    assert "W9" in capsys.readouterr().err
