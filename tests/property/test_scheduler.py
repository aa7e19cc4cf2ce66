"""Whoever comes when with whatever: replies keep their pace, prompts get on, nobody is starved."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scheduler_bench import Bench

MAX_ITL_S, TOKEN_BUDGET = 0.1, 256
STEP_S, REPLY_S, ROW_S, KPAIR_S = 0.01, 0.001, 0.001, 0.0003


def machine(work):
    return STEP_S + REPLY_S * work.num_replies + ROW_S * work.num_rows + KPAIR_S * work.num_kpairs


def busy_bench():
    """One that knows how long its steps take."""
    bench = Bench(
        num_blocks=10**6,
        token_budget=TOKEN_BUDGET,
        max_running=32,
        max_itl_s=MAX_ITL_S,
        machine=machine,
    )
    bench.add("first", 10, "somebody")
    bench.step()
    bench.add("long", 2000, "somebody")
    while bench.sequences["long"].num_tokens == 2000:
        bench.step()
    bench.end("first")
    bench.end("long")
    bench.sequences.clear()
    bench.done.clear()
    return bench


def has_begun(sequence):
    return sequence.num_tokens > sequence.num_prompt_tokens


# When each comes (steps after the one before), its prompt, its reply, whose it is.
visits = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.one_of(st.integers(1, 60), st.integers(500, 4000)),
        st.integers(1, 30),
        st.sampled_from(["ann", "bob", "cid"]),
    ),
    min_size=1,
    max_size=25,
)


@given(visits)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_replies_keep_their_pace_and_everybody_gets_done(visits):
    bench, num_steps, due, lengths = busy_bench(), 0, 0, {}
    arrivals = []
    for pause, num_prompt, num_reply, owner in visits:
        due += pause
        arrivals.append((due, num_prompt, num_reply, owner))
    total_rows = sum(num_prompt for _, num_prompt, _, _ in arrivals)

    while arrivals or bench.scheduler.has_work:
        while arrivals and arrivals[0][0] <= num_steps:
            _, num_prompt, num_reply, owner = arrivals.pop(0)
            name = f"s{len(lengths)}"
            lengths[name] = num_prompt + num_reply
            bench.add(name, num_prompt, owner)
        running = list(bench.scheduler.running)
        replying = {s.id for s in running if s.num_uncomputed_tokens == 1}
        prompts = [s for s in running if s.num_uncomputed_tokens > 1]
        planned = bench.step()
        num_steps += 1

        assert all(planned[name] == 1 for name in replying)
        assert sum(planned.values()) <= TOKEN_BUDGET
        if prompts:
            assert planned[min(prompts, key=lambda s: s.arrived_s).id] >= 1
        for name in [n for n in planned if bench.sequences[n].num_tokens >= lengths[n]]:
            bench.end(name)
        # Even if each step computed but its least, and each reply came alone.
        assert num_steps <= due + total_rows / 8 + sum(30 for _ in visits) + len(visits)

    assert all(s.num_tokens >= lengths[name] for name, s in bench.sequences.items())
    late = [seconds for work, seconds in bench.done if work.num_replies and seconds > MAX_ITL_S]
    assert len(late) <= 2
    assert max(late, default=0.0) <= 1.3 * MAX_ITL_S


@given(
    longs=st.lists(st.integers(1000, 6000), min_size=1, max_size=6),
    num_ahead=st.integers(0, 40),
    num_tokens=st.integers(1, 16),
    is_same_owner=st.booleans(),
    num_replies=st.integers(0, 8),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_short_turn_does_not_wait_behind_somebody_s_long_text(
    longs, num_ahead, num_tokens, is_same_owner, num_replies
):
    bench = busy_bench()
    for i in range(num_replies):
        bench.add(f"reply{i}", 1, "ann")
    if num_replies:
        bench.step()
    for i, num_prompt in enumerate(longs):
        bench.add(f"long{i}", num_prompt, "ann")
    for _ in range(num_ahead):
        bench.step()
    short = bench.add("short", num_tokens, "ann" if is_same_owner else "bob")

    bench.step()

    assert has_begun(short)


@given(st.lists(st.integers(20, 60), min_size=3, max_size=8), st.integers(500, 3000))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_a_long_text_gets_on_however_many_short_turns_come(shorts, num_tokens):
    bench = busy_bench()
    long = bench.add("long", num_tokens, "ann")
    num_steps = 0
    while not has_begun(long):
        for i, num_prompt in enumerate(shorts):
            bench.add(f"s{num_steps}/{i}", num_prompt, "ann")
        for name in bench.step():
            if name != "long" and has_begun(bench.sequences[name]):
                bench.end(name)
        num_steps += 1

    # It has a quarter of what a step of a tenth of a second can, or of two where none replies.
    assert num_steps <= num_tokens / 8
