"""An engine's client side over `stub_worker`: started, asked, and waited for."""

import asyncio
from contextlib import asynccontextmanager

from model.config import EngineConfig, SamplingParams
from model.engine import Engine, EngineState
from model.messages import GenerationRequest


@asynccontextmanager
async def running(tmp_path, model="good", **options):
    engine = Engine(EngineConfig(model=model, models_dir=tmp_path), **options)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def request(name, token_ids=(4, 5, 6)) -> GenerationRequest:
    return GenerationRequest(request_id=name, token_ids=tuple(token_ids), params=SamplingParams())


async def until(engine: Engine, state: EngineState) -> None:
    """The engine tells nobody its state; it changes with what its process says."""
    async with asyncio.timeout(10):
        while engine.state is not state:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def num_lives(tmp_path) -> int:
    return (tmp_path / "lives").stat().st_size
