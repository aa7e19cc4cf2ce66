"""The process that compiles: `python -m model.compiled.build FOLDER`, an order on its input.

Leaves the step in the folder and ends with 0, or says on standard output why not. It has the
lowest priority unless somebody waits for it, and ends with its parent: standard input stays open
as long as that lives.
"""

import os
import pickle
import signal
import sys
import threading
import zipfile
from pathlib import Path
from types import TracebackType

import torch
from safetensors.torch import save_file
from torch.export import ExportedProgram

from model.attention.base import register
from model.compiled.blueprint import build
from model.compiled.folder import CONSTANTS, PACKAGE, seal
from model.compiled.graph import trace
from model.compiled.order import BuildOrder
from model.native.build import load_ops

_NICE = 19
_MAX_REASON = 300


def main(folder: Path) -> None:
    """Carry out one order."""
    sys.excepthook = _say
    order: BuildOrder = pickle.load(sys.stdin.buffer)
    if not order.is_urgent:
        os.nice(_NICE)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    ops = load_ops(order.native_dir, lambda _: None)
    register()
    program = trace(order, build(order.blueprint), ops)
    _compile(program, folder, order.compiler)
    seal(folder)


def _compile(program: ExportedProgram, folder: Path, compiler: str) -> None:
    # It takes seconds to import, and only this process ever does.
    from torch._inductor import aoti_compile_and_package
    from torch._inductor.utils import fresh_cache

    archive = folder / "step.pt2"
    with fresh_cache(dir=str(folder)):
        aoti_compile_and_package(
            program,
            package_path=str(archive),
            inductor_configs={
                "aot_inductor.package_constants_in_so": False,
                "aot_inductor.precompile_headers": False,  # for whoever compiles often
                "compile_threads": 1,
                # Between the products and attention of replies there is less to do than waking a
                # thread takes; what prompts lose by it on two cores, joined products give back.
                "cpp.threads": 1,
                "cpp.cxx": (compiler,),
            },
        )
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder / PACKAGE)
    archive.unlink()
    save_file(_constants(program), folder / CONSTANTS)


def _constants(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """What the trace found that is no parameter and no buffer: numbers made in the model's code."""
    return {
        name: value.detach().clone().contiguous()
        for name, value in program.constants.items()
        if isinstance(value, torch.Tensor)
    }


def _end_with_parent() -> None:
    # Not by the buffered reader, whose lock a thread that waits would keep beyond the end.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(0, signal.SIGKILL)  # compilers that it started, too


def _say(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    reason = " ".join(str(error).split())[:_MAX_REASON]
    print(f"{kind.__name__}: {reason}", flush=True)  # noqa: T201 (what the parent reads)
    sys.__excepthook__(kind, error, traceback)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
