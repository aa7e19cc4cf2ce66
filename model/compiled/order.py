"""What is to be compiled, and the name of what comes of it.

The name is a digest of everything that decides the result: this program's sources, the model, the
versions of torch and transformers, the CPU with its instructions and the cache's
shape. So a step that lies under its name is the right one, and what changes any of these
has another.
"""

import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch import nn

from model.kv_cache import KVShape

LEAST_ROWS = 5
"""What is traced has so many: few could be taken for what never changes, or for another size."""
MAX_ROWS = 1 << 16
"""A step is right for so many at the most, unless the model's layers set a limit."""

_PACKAGE = Path(__file__).resolve().parent.parent
_CPU_FACTS = ("model name", "flags", "CPU part", "Features")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOrder:
    """Crosses to the compiling process, pickled. `blueprint` is the model without its weights; it
    computes in `dtype`; the kernels are in `native_dir`; `max_rows` is at least `LEAST_ROWS`. What
    is urgent, because somebody waits for it, doesn't give way to others."""

    blueprint: bytes
    native_dir: Path
    windows: tuple[int | None, ...]
    kv: KVShape
    embedding_size: int
    dtype: torch.dtype
    max_rows: int
    compiler: str
    is_urgent: bool = False


def step_name(
    identity: str, model: nn.Module, kv: KVShape, namespace: str, numbers: tuple[int, ...]
) -> str:
    """The result's name. `identity` is the fingerprint of weights and configuration; `numbers` are
    rows and sizes. Of the model, its modules' classes and its tensors' forms count as well, for
    they may have been changed since it was loaded."""
    parts = [
        _sources(),
        identity,
        [(name, type(module).__qualname__) for name, module in model.named_modules()],
        [_form(name, t) for name, t in (*model.named_parameters(), *model.named_buffers())],
        [kv.num_layers, kv.block_size, kv.num_kv_heads, kv.head_size, str(kv.dtype)],
        namespace,
        numbers,
        [torch.__version__, transformers.__version__, platform.python_version()],
        [platform.system(), platform.machine(), _cpu()],
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


def _sources() -> str:
    """Of the whole engine: what a trace runs through is spread over it."""
    digest = hashlib.sha256()
    for source in sorted(_PACKAGE.rglob("*.py")):
        digest.update(f"{source.relative_to(_PACKAGE)}\n".encode() + source.read_bytes())
    return digest.hexdigest()


def _form(name: str, tensor: torch.Tensor) -> tuple[object, ...]:
    return name, tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype)


def _cpu() -> str:
    """What its compiler calls native."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    facts = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    return repr([value for name, value in sorted(facts.items()) if name.strip() in _CPU_FACTS])
