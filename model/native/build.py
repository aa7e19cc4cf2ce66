"""Compiles the kernels, once, and loads them as torch operators.

What is compiled lies in one file whose name is a digest of the sources, the flags, torch's version
and the machine's architecture, so a file that is there is right. It has every level of instruction
sets and picks one when it is loaded: what this CPU can do is no part of the name. A file appears
whole or not at all, and of two processes that want it one compiles and the other waits.
"""

import hashlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import filelock
import torch

from model.native.operators import NativeOps

_SOURCES = Path(__file__).parent
_TORCH = Path(torch.__file__).parent
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = "-std=c++20 -O3 -fPIC -pthread -w -ffp-contract=fast -fno-math-errno -fno-trapping-math"
_AVX512 = "-mfma -mavx512f -mavx512bw -mavx512vl -mavx512dq"
_LEVELS = {
    "portable": "",
    "avx2": "-mavx2 -mfma -mf16c",
    "avx512": _AVX512,
    "avx512_vnni": f"{_AVX512} -mavx512vnni",
    "avx512_bf16": f"{_AVX512} -mavx512vnni -mavx512bf16",
}
_X86 = ("x86_64", "AMD64")
_TIMEOUT_S = 300.0
_MAX_REASON = 300  # characters of what a compiler says


def _attended(kv: torch.Tensor, query: torch.Tensor, *_: object) -> torch.Tensor:
    return query.new_empty(query.shape)


def _multiplied(
    inputs: torch.Tensor, _: Sequence[torch.Tensor], sizes: Sequence[int], *__: object
) -> torch.Tensor:
    return inputs.new_empty((*inputs.shape[:-1], sum(sizes)))


def _written(*_: object) -> None:
    pass


_RESULTS: dict[str, Callable[..., torch.Tensor | None]] = {
    "attend_step": _attended,
    "linears": _multiplied,
    "linears_packed": _multiplied,
    "unpack": _written,
}
"""What comes out of an operator, for whoever traces a model without running it."""


class NativeBuildError(Exception):
    """Why there are no kernels."""


@dataclass(frozen=True, slots=True)
class _Job:
    """One call of the compiler."""

    arguments: tuple[str, ...]
    output: Path


def find_compiler() -> str | None:
    """A C++ compiler's path."""
    return next(filter(None, map(shutil.which, _COMPILERS)), None)


def library_path(folder: Path) -> Path:
    """Where the compiled kernels are, or will be."""
    return folder.expanduser() / f"{library_name()}.so"


def load_ops(folder: Path, on_progress: Callable[[str], None]) -> NativeOps:
    """The kernels as torch operators, compiled if they aren't yet. Raises NativeBuildError."""
    ops: NativeOps = getattr(torch.ops, library_name())
    if hasattr(ops, "attend"):
        return ops  # a process can't load them twice
    library = compile_once(folder, on_progress)
    try:
        torch.ops.load_library(library)  # type: ignore[no-untyped-call]
    except OSError as exc:
        library.unlink(missing_ok=True)  # damaged: the next start compiles it again
        raise NativeBuildError(f"{exc}: {exc.__cause__}") from exc
    for name, describe in _RESULTS.items():
        torch.library.register_fake(f"{library_name()}::{name}", describe)
    return ops


def compile_once(folder: Path, on_progress: Callable[[str], None]) -> Path:
    """The library in `folder`, made there if it is missing, which takes some ten seconds. Raises
    NativeBuildError."""
    try:
        library = library_path(folder)
        if not library.exists():
            _build(library, on_progress)
    # A home folder that can't be found is a RuntimeError.
    except (OSError, RuntimeError, subprocess.SubprocessError) as exc:
        raise NativeBuildError(str(exc)) from exc
    return library


def library_name() -> str:
    """The file's, and that of the operators' namespace."""
    digest = hashlib.sha256()
    for source in sorted(p for p in _SOURCES.iterdir() if p.suffix in (".cpp", ".h")):
        digest.update(f"{source.name}\n".encode() + source.read_bytes())
    digest.update(repr((_FLAGS, _levels(), torch.__version__, platform.machine())).encode())
    return f"splice_{digest.hexdigest()[:20]}"


def _levels() -> dict[str, str]:
    """Each level's flags."""
    return _LEVELS if platform.machine() in _X86 else {"portable": ""}


def _build(library: Path, on_progress: Callable[[str], None]) -> None:
    compiler = find_compiler()
    if compiler is None:
        raise NativeBuildError(f"no C++ compiler is installed ({', '.join(_COMPILERS)})")
    library.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(library.with_suffix(".lock"), timeout=_TIMEOUT_S):
        if library.exists():  # another process was first
            return
        on_progress("compiling the kernels for this machine, once")
        with tempfile.TemporaryDirectory(dir=library.parent, prefix="build-") as name:
            built = Path(name) / library.name
            jobs = list(_jobs(Path(name)))
            _run(compiler, jobs)
            _run(compiler, [_link([job.output for job in jobs], built)])
            built.replace(library)


def _jobs(folder: Path) -> Iterator[_Job]:
    for level, flags in _levels().items():
        source = str(_SOURCES / "level.cpp")
        yield _compile(source, folder / f"{level}.o", [*flags.split(), f"-DLEVEL={level}"])
    torch_flags = [f"-I{_TORCH / 'include'}", f"-DSPLICE_NAMESPACE={library_name()}"]
    x86 = ["-DSPLICE_X86"] if "avx2" in _levels() else []
    yield _compile(str(_SOURCES / "ops.cpp"), folder / "ops.o", [*torch_flags, *x86])


def _compile(source: str, output: Path, flags: Sequence[str]) -> _Job:
    return _Job((*_FLAGS.split(), *flags, "-c", source, "-o", str(output)), output)


def _link(objects: Sequence[Path], output: Path) -> _Job:
    libraries = (f"-L{_TORCH / 'lib'}", "-ltorch_cpu", "-lc10")
    return _Job(("-shared", "-pthread", *map(str, objects), "-o", str(output), *libraries), output)


def _run(compiler: str, jobs: Sequence[_Job]) -> None:
    """All jobs at once. Raises NativeBuildError with the start of what the compiler said."""
    processes = [
        subprocess.Popen(
            [compiler, *job.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        for job in jobs
    ]
    try:
        said = [process.communicate(timeout=_TIMEOUT_S)[1] for process in processes]
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()  # those that still run, after a failure
            process.wait()
    for process, text in zip(processes, said, strict=True):
        if process.returncode != 0:
            reason = " ".join(text.split())[:_MAX_REASON]
            raise NativeBuildError(f"{compiler} failed: {reason}")
