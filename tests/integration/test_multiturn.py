"""The benchmarks of running servers against real front ends, at a size that measures nothing."""

import json
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from benchmarks import comparison, multiturn, plots
from benchmarks.rounds import Round, Said, measure, send
from benchmarks.targets import CompletionsTarget, SessionTarget, TurnTimes
from benchmarks.workloads import WORKLOADS, Workload, words
from tests.support.fake_engine import FakeEngine
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


def made_round(first_token_s, *, reply_tokens=5, total_s=1.0):
    """Two turns of one chat, with one token each tenth of a second."""
    said = []
    for turn in range(2):
        arrivals = [first_token_s + 0.1 * i for i in range(reply_tokens)]
        times = TurnTimes(0.0, arrivals, "words", 100 * (turn + 1), reply_tokens, 50 * turn)
        said.append(Said(0, turn, times))
    return Round(said, total_s)


@pytest.mark.parametrize("kind", [SessionTarget, CompletionsTarget])
async def test_each_way_of_talking_is_measured_turn_by_turn(tmp_path, kind):
    async with serving_whole(tmp_path) as front:
        target = kind(front.base_url)
        measured = await send(target, SMALL, 0)
        await target.close()

    assert Counter(s.turn for s in measured.said) == {0: 2, 1: 2}
    assert all(s.times.first_token_s > 0 and s.times.text for s in measured.said)
    assert all(s.times.num_prompt > s.times.num_cached >= 0 for s in measured.said)
    assert all(s.times.num_tokens > 0 for s in measured.said)
    assert measured.total_s > 0


async def test_two_ways_to_one_server_send_prompts_that_part_at_once(tmp_path):
    engine = FakeEngine()
    async with serving_whole(tmp_path, engine=engine) as front, AsyncExitStack() as stack:
        for opening in ("", "su "):
            target = CompletionsTarget(front.base_url, opening)
            stack.push_async_callback(target.close)
            await (await target.begin("ka lo mi")).say("ra", 3)

    first, second = (request.token_ids for request in engine.requests)
    common = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert common < 6  # what the template begins every prompt with


async def test_targets_take_turns_round_by_round(tmp_path):
    told = []
    async with AsyncExitStack() as stack:
        targets = {}
        for name in ("a", "b"):
            (folder := tmp_path / name).mkdir()
            front = await stack.enter_async_context(serving_whole(folder))
            targets[name] = SessionTarget(front.base_url)
            stack.push_async_callback(targets[name].close)
        rounds = await measure(targets, SMALL, range(2, 4), told.append)

    assert [len(r) for r in rounds.values()] == [2, 2]
    order = [text.split(":")[0] for text in told]
    assert order == [f"small round {number}, {name}" for number in (3, 4) for name in ("a", "b")]


def test_a_round_counts_what_was_reused_and_what_its_chats_hold():
    measured = made_round(0.2)

    assert measured.later_first_token_s == pytest.approx(0.2)
    assert measured.inter_token_s == pytest.approx(0.1)
    assert measured.tokens_per_s == 10
    assert measured.later_reused == 0.25
    assert measured.num_tokens() == 205
    measured.said[1].times.num_cached = None
    assert measured.later_reused is None


def test_the_report_compares_with_the_best_peer_of_each_figure():
    rounds = {
        "splice": [made_round(0.1, total_s=0.5), made_round(0.3, total_s=0.5)],
        "slow": [made_round(0.4), made_round(0.4)],
        "few": [made_round(0.2, total_s=2.0), made_round(0.2, total_s=2.0)],
    }

    text = comparison.report(SMALL, rounds, ["slow", "few"])

    assert "| later-turn first token (ms) | 200.0 (100.0 to 300.0) | 400.0" in text
    assert "| later-turn first token (ms) | few | 1.00 (0.50 to 1.50) |" in text
    assert "| reply tokens a second | slow | 2.00 (2.00 to 2.00) |" in text
    assert "- splice: 200, 200" in text
    assert "| of the later prompts reused | 25.0% |" in text


def test_without_peers_the_first_target_is_compared_with_and_one_alone_with_nothing():
    rounds = {"a": [made_round(0.4)], "b": [made_round(0.1)]}

    assert "| later-turn first token (ms) | a | 0.25 " in comparison.report(SMALL, rounds, [])
    assert "ratio" not in comparison.report(SMALL, {"a": rounds["a"]}, [])


def test_a_plot_is_drawn_for_a_workload(tmp_path):
    rounds = {"a": [made_round(0.4), made_round(0.2)], "b": [made_round(0.1), made_round(0.1)]}

    path = plots.draw(SMALL, rounds, tmp_path / "new")

    assert path == tmp_path / "new" / "small.png"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_every_turn_is_written_as_json(tmp_path):
    multiturn.write_raw(tmp_path / "raw.json", [(SMALL, {"a": [made_round(0.4)]})])

    (row,) = json.loads((tmp_path / "raw.json").read_text(encoding="utf-8"))
    assert (row["target"], row["workload"], row["round"]) == ("a", "small", 0)
    assert [t["first_token_s"] for t in row["turns"]] == [0.4, 0.4]


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda w: w.name)
def test_a_workload_sends_every_turn_of_a_chat_in_order(workload):
    seen = Counter()
    for chat, turn in workload.order():
        assert turn == seen[chat]
        seen[chat] += 1

    assert seen.total() == workload.num_chats * workload.num_turns
    assert workload.longest == max(seen.values())


def test_words_depend_on_nothing_but_the_seed():
    assert words(30, "a") == words(30, "a") != words(30, "b")
    assert len(words(30, "a").split()) == 30


def test_without_a_server_or_with_an_unknown_workload_it_says_what_to_do(capsys):
    assert multiturn.main([]) == 2
    assert "--splice" in capsys.readouterr().err
    assert multiturn.main(["W9", "--splice", "http://x"]) == 2
    assert "W9" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["llama", "=http://x", "llama="])
def test_a_peer_has_a_name_and_a_url(text, capsys):
    with pytest.raises(SystemExit):
        multiturn.main(["--peer", text])
    assert "NAME=URL" in capsys.readouterr().err
