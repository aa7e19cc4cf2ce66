"""Decides whether a model's step is to be compiled, and gives the order."""

import logging
from pathlib import Path

from transformers import PreTrainedModel

from model.attention.base import AttentionBackend
from model.attention.cpu import CpuBackend
from model.batch import Batch
from model.compiled.blueprint import BlueprintError, draw
from model.compiled.builder import Site, StepBuilder
from model.compiled.order import MAX_ROWS, BuildOrder, step_name
from model.compiled.probe import Probe
from model.compiled.step import CompiledStep, StepSource
from model.config import CompileMode, EngineConfig, Mode
from model.kv_cache import KVShape
from model.messages import CompiledState, CompiledStats
from model.native.build import find_compiler, library_name
from model.quantized_linear import row_limit

logger = logging.getLogger(__name__)


class NoStep:
    """There is no compiled step, and there will be none."""

    def __init__(self, state: CompiledState, reason: str | None = None) -> None:
        self._stats = CompiledStats(state=state, reason=reason)

    def step_for(self, batch: Batch) -> CompiledStep | None:
        """None."""
        return None

    def give_up(self, reason: str) -> None:
        """There is none to."""
        raise AssertionError("there was no step")

    def stats(self) -> CompiledStats:
        """Why."""
        return self._stats


def commission(
    config: EngineConfig,
    model: PreTrainedModel,
    windows: tuple[int | None, ...],
    kv: KVShape,
    backend: AttentionBackend,
    identity: str,
) -> StepSource:
    """Where the runner will have its compiled step from. With `first` it is there on return, or
    can't be had. Costs six small steps of the model."""
    if config.compile is CompileMode.OFF:
        return NoStep(CompiledState.OFF)
    reason = reason_against(config, backend.name)
    if reason is not None:
        return NoStep(CompiledState.OFF, reason)
    assert isinstance(backend, CpuBackend)
    try:
        builder = _builder(config, model, windows, kv, backend, identity)
    except BlueprintError as exc:
        logger.warning("the model's step stays as it is, not compiled: %s", exc)
        return NoStep(CompiledState.UNAVAILABLE, str(exc))
    if config.compile is CompileMode.FIRST:
        builder.obtain(at_once=True)
    else:
        builder.start()
    return builder


def reason_against(config: EngineConfig, attention: str) -> str | None:
    """Why no step is compiled with that backend, where one is asked for; None: it may be."""
    if config.mode is Mode.EXACT:
        return "mode exact computes every token the same way"
    if attention != CpuBackend.name:
        return f"attention {attention} is not compiled"
    return None


def _builder(
    config: EngineConfig,
    model: PreTrainedModel,
    windows: tuple[int | None, ...],
    kv: KVShape,
    backend: CpuBackend,
    identity: str,
) -> StepBuilder:
    probe = Probe(model, windows, kv, backend)
    order = BuildOrder(
        blueprint=draw(model),
        native_dir=config.native_dir,
        windows=windows,
        kv=kv,
        embedding_size=probe.embedding_size,
        dtype=model.dtype,
        max_rows=row_limit(model) or MAX_ROWS,
        compiler=find_compiler() or "",
    )
    numbers = (order.max_rows, order.embedding_size)
    name = step_name(identity, model, kv, library_name(), numbers)

    def load(folder: Path) -> CompiledStep:
        step = CompiledStep(folder, model, order.max_rows)
        probe.check(step)
        return step

    return StepBuilder(name, order, load, Site(config.native_dir.expanduser()))
