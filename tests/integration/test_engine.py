"""The engine with its real process and a tiny random model: streams, crashes, ends."""

import asyncio
import shutil
import subprocess
import sys
from contextlib import aclosing
from dataclasses import replace

import psutil
import pytest
import pytest_asyncio

from model.config import Device, EngineConfig, Mode, SamplingParams
from model.engine import Engine, EngineState
from model.errors import (
    ContextLengthError,
    EngineUnavailableError,
    InvalidGenerationError,
    ModelLoadError,
)
from model.grammar import Grammar, GrammarKind
from model.messages import (
    FinishReason,
    GenerationDelta,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    MissReason,
)
from tests.support.tiny_folder import save_tiny_model

pytestmark = pytest.mark.asyncio(loop_scope="module")
ENDLESS = 100_000


def config_for(folder, **fields) -> EngineConfig:
    return EngineConfig(
        model=str(folder),
        models_dir=folder.parent / "models",
        device=Device.CPU,
        mode=Mode.EXACT,
        num_blocks=9000,
        num_threads=1,
        check_books=True,
        **fields,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("engine") / "model", max_positions=131_072)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(folder):
    engine = Engine(config_for(folder))
    await engine.start()
    yield engine
    await engine.close()
    assert engine.state is EngineState.CLOSED


def request(name, token_ids=(5, 6, 7), *, num=6, conversation=None, **fields) -> GenerationRequest:
    return GenerationRequest(
        request_id=name,
        token_ids=tuple(token_ids),
        params=SamplingParams(temperature=0.0, max_output_tokens=num, ignore_eos=True),
        conversation_id=conversation,
        **fields,
    )


async def run(engine: Engine, generation: GenerationRequest) -> GenerationFinished:
    events = [event async for event in engine.generate(generation)]
    start, *deltas, end = events
    assert isinstance(start, GenerationStarted)
    assert isinstance(end, GenerationFinished)
    assert "".join(d.text for d in deltas) == end.text
    return end


async def test_turns_of_a_conversation_stream_and_reuse_their_history(engine):
    assert engine.info.max_context_tokens == 131_072
    one = await run(engine, request("one", range(10, 40), conversation="conv"))
    assert len(one.token_ids) == 6
    log = [*range(10, 40), *one.token_ids]

    events = [
        event
        async for event in engine.generate(
            request(
                "two",
                [*log, 8, 9],
                conversation="conv",
                parent_turn_id="one",
                num_known_tokens=len(log),
            )
        )
    ]

    claim = events[0].claim
    assert (claim.from_device, claim.computed, claim.reason) == (35, 3, None)
    assert events[-1].num_rows_computed == 3 + 5
    (table,) = await engine.tables("conv")
    assert (table.turn_id, table.num_computed_tokens) == ("two", 43)
    assert await engine.evict("conv") == 3
    again = [e async for e in engine.generate(request("three", log, num_known_tokens=36))]
    assert again[0].claim.reason is MissReason.EVICTED


async def test_generations_at_once_have_the_tokens_of_one_alone(engine):
    prompts = [range(i, i + 5 + i) for i in range(12)]
    alone = [await run(engine, request(f"alone{i}", p, num=20)) for i, p in enumerate(prompts)]

    together = await asyncio.gather(
        *(run(engine, request(f"together{i}", p, num=20)) for i, p in enumerate(prompts))
    )

    assert [t.token_ids for t in together] == [a.token_ids for a in alone]


async def test_a_large_prompt_does_not_hold_up_another_s_tokens(engine):
    """It takes several chunks, and between any two of them the other reply gets a token."""
    has_begun, is_done = asyncio.Event(), asyncio.Event()

    async def stream() -> int:
        num_before = num = 0
        async with aclosing(engine.generate(request("small", num=ENDLESS))) as events:
            async for event in events:
                num += isinstance(event, GenerationDelta)
                if num == 3:
                    has_begun.set()
                    num_before = num
                if is_done.is_set():
                    break
        return num - num_before

    async def fill() -> None:
        await has_begun.wait()
        await run(engine, request("large", [i % 300 for i in range(3000)], num=2))
        is_done.set()

    num_between, _ = await asyncio.gather(stream(), fill())

    assert num_between >= 3000 // engine._config.token_budget


async def test_cancelling_ends_with_what_there_is_and_leaving_frees_everything(engine):
    async with aclosing(engine.generate(request("cut", num=ENDLESS))) as events:
        seen = []
        async for event in events:
            seen.append(event)
            if len(seen) == 5:
                await engine.cancel("cut")
    assert seen[-1].reason is FinishReason.CANCELLED
    tokens = tuple(t for e in seen if isinstance(e, GenerationDelta) for t in e.token_ids)
    assert seen[-1].token_ids == tokens

    async with aclosing(engine.generate(request("left", num=ENDLESS))) as events:
        await anext(events)
    async with asyncio.timeout(10):
        while (stats := await engine.stats()).num_running:
            pass
    assert stats.blocks_running == 0
    assert dict(stats.finished_by_reason)["cancelled"] >= 2


async def test_what_can_never_be_served_is_an_error_of_its_own_class(engine):
    with pytest.raises(ContextLengthError) as caught:
        await run(engine, request("long", [1] * 131_100))
    assert caught.value.num_tokens_over == 29
    with pytest.raises(InvalidGenerationError, match="vocabulary"):
        await run(engine, request("odd", [99_999]))


async def test_a_form_is_compiled_in_the_process_and_held_to(engine):
    form = Grammar(kind=GrammarKind.JSON_SCHEMA, text='{"enum": ["red", "green"]}', param="format")
    bound = request("bound", num=40)
    bound = replace(bound, params=replace(bound.params, grammar=form))

    finished = await run(engine, bound)

    assert finished.text in ('"red"', '"green"')
    assert finished.reason is FinishReason.STOP


async def test_a_form_that_cannot_be_is_refused_with_its_senders_name(engine):
    broken = Grammar(kind=GrammarKind.REGEX, text="[", param="response_format")
    asked = request("broken")
    asked = replace(asked, params=replace(asked.params, grammar=broken))

    for refusing in (run(engine, asked), engine.check_grammar(broken)):
        with pytest.raises(InvalidGenerationError) as caught:
            await refusing
        assert caught.value.param == "response_format"
    await engine.check_grammar(replace(broken, text="a"))


async def test_closing_in_mid_reply_ends_stream_and_process(engine):
    pid = engine.pid
    async with aclosing(engine.generate(request("open", num=ENDLESS))) as events:
        await anext(events)
        await engine.close()
        with pytest.raises(EngineUnavailableError, match="closed"):
            async for _ in events:
                pass

    assert not psutil.pid_exists(pid)


async def test_a_model_that_can_not_be_loaded_is_told_in_a_sentence(folder, tmp_path):
    broken = shutil.copytree(folder, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"not safetensors")
    engine = Engine(config_for(broken))

    with pytest.raises(ModelLoadError, match="can't be loaded"):
        await engine.start()

    await engine.close()
    assert engine.state is EngineState.FAILED


FRONT_END = """
import asyncio, pathlib, sys
from model.config import Device, EngineConfig, SamplingParams
from model.engine import Engine
from model.messages import GenerationRequest

async def main():
    folder = pathlib.Path(sys.argv[1])
    engine = Engine(EngineConfig(model=str(folder), models_dir=folder.parent / "models",
                                 device=Device.CPU, num_blocks=9000, num_threads=1))
    await engine.start()
    params = SamplingParams(ignore_eos=True)
    async for event in engine.generate(
        GenerationRequest(request_id="r", token_ids=(5, 6), params=params)
    ):
        print(engine.pid, flush=True)

asyncio.run(main())
"""


async def test_the_process_ends_when_its_front_end_is_killed_in_mid_reply(folder):
    front_end = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FRONT_END, str(folder), stdout=subprocess.PIPE
    )
    line = await front_end.stdout.readline()
    orphan = psutil.Process(int(line))

    front_end.kill()
    await front_end.communicate()

    await asyncio.to_thread(orphan.wait, 10)
    assert not orphan.is_running()
