"""A compiled step that ends the engine's process: the reply goes on, and nobody uses it again."""

import asyncio
import shutil

import pytest

from model.config import AttentionName, CompileMode, Device, EngineConfig, Mode, SamplingParams
from model.engine import Engine
from model.messages import CompiledState, GenerationDelta, GenerationRequest
from model.native.build import library_path
from tests.support.native_kernels import native_ops
from tests.support.tiny_folder import save_tiny_model

pytestmark = [pytest.mark.full, pytest.mark.asyncio, pytest.mark.timeout(600)]

# Every process of Python that finds this runs it first. The engine's has a step whose compiled code
# ends it some calls after it was found right.
FAULTY = """
import ctypes, sys
if "model.worker" in " ".join(sys.orig_argv):
    from model.compiled.step import CompiledStep
    load = CompiledStep.__init__

    class Loader:
        def __init__(self, loader):
            self.loader, self.num_calls = loader, 0

        def run(self, inputs):
            self.num_calls += 1
            if self.num_calls > 6:
                ctypes.string_at(0)
            return self.loader.run(inputs)

    def load_faulty(self, *arguments):
        load(self, *arguments)
        self._loader = Loader(self._loader)

    CompiledStep.__init__ = load_faulty
"""


async def reply(engine):
    request = GenerationRequest(
        request_id="a",
        token_ids=tuple(range(3, 23)),
        params=SamplingParams(temperature=0.0, max_output_tokens=40, ignore_eos=True),
        conversation_id="a",
    )
    events = [event async for event in engine.generate(request)]
    return [i for e in events if isinstance(e, GenerationDelta) for i in e.token_ids]


async def test_the_reply_goes_on_and_no_process_uses_it_again(tmp_path, monkeypatch, caplog):
    native_ops()
    shutil.copy(library_path(EngineConfig().native_dir), tmp_path)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(FAULTY)
    config = EngineConfig(
        model=str(save_tiny_model(tmp_path / "model")),
        models_dir=tmp_path / "models",
        native_dir=tmp_path,
        device=Device.CPU,
        mode=Mode.FAST,
        attention=AttentionName.CPU,
        compile=CompileMode.FIRST,
        num_blocks=64,
        num_threads=1,
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    engine = Engine(config)
    await engine.start()
    try:
        before = await engine.stats()
        async with asyncio.timeout(120):
            token_ids = await reply(engine)
        after = await engine.stats()
    finally:
        await engine.close()

    assert before.compiled.state is CompiledState.READY, before.compiled.reason
    assert len(token_ids) == 40
    assert after.num_restarts == 1
    assert after.compiled.state is CompiledState.UNAVAILABLE
    (faults,) = tmp_path.glob("step-*.faults")
    assert str(faults) in after.compiled.reason
    assert str(faults) in caplog.text
    assert "in run" in faults.read_text()
