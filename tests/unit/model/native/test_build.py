"""How the kernels are compiled once, and what happens where they can't be."""

import subprocess
import sys

import pytest
import torch

from model.native import build
from model.native.build import (
    NativeBuildError,
    compile_once,
    library_path,
    load_ops,
)
from tests.support.live_server import ROOT
from tests.support.native_kernels import native_ops

COMPILER = """#!/bin/sh
echo "$@" >> {log}
while [ "$1" != -o ]; do shift; done
echo compiled > "$2"
"""


@pytest.fixture
def only_program(monkeypatch, tmp_path):
    """Puts one program on the path and nothing else."""

    def put(name=None, text=""):
        folder = tmp_path / "bin"
        folder.mkdir()
        monkeypatch.setenv("PATH", str(folder))
        if name is not None:
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        return folder

    return put


@pytest.fixture
def another_name(monkeypatch):
    """Kernels that this process has not loaded."""
    monkeypatch.setattr(build, "_FLAGS", f"{build._FLAGS} -DOTHER")


def test_a_process_loads_them_once():
    assert native_ops() is native_ops()


def test_the_file_is_named_for_all_that_it_depends_on(monkeypatch, tmp_path):
    names = [library_path(tmp_path).name]
    changes = [
        (build, "_FLAGS", "-O0"),
        (torch, "__version__", "0.1"),
        (build.platform, "machine", lambda: "abacus"),
        (build, "_SOURCES", tmp_path),
    ]
    for changed in changes:
        with monkeypatch.context() as patch:
            patch.setattr(*changed)
            names.append(library_path(tmp_path).name)

    assert len(set(names)) == len(names)
    assert library_path(tmp_path).name == names[0]


def test_what_was_compiled_is_taken_again(only_program, tmp_path):
    log, said = tmp_path / "log", []
    only_program("g++", COMPILER.format(log=log))

    first = compile_once(tmp_path / "made" / "here", said.append)
    calls = log.read_text().splitlines()
    again = compile_once(tmp_path / "made" / "here", said.append)

    assert first == again
    assert first.read_text() == "compiled\n"
    assert len(calls) == len(build._levels()) + 2  # the operators, and all together
    assert log.read_text().splitlines() == calls
    assert said == ["compiling the kernels for this machine, once"]
    assert {p.suffix for p in first.parent.iterdir()} <= {".so", ".lock"}


def test_of_two_processes_one_compiles(only_program, tmp_path):
    log = tmp_path / "log"
    folder = only_program("c++", COMPILER.format(log=log))
    program = (
        "import sys; from pathlib import Path; from model.native.build import *;"
        "sys.stdin.readline(); compile_once(Path(sys.argv[1]), print)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "made")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": str(folder), "PYTHONPATH": str(ROOT)},
        )
        for _ in range(2)
    ]
    said = [process.communicate("go\n")[0] for process in processes]

    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(map(bool, said)) == [False, True]
    assert len(log.read_text().splitlines()) == len(build._levels()) + 2


def test_without_a_compiler_the_reason_says_so(only_program, tmp_path):
    only_program()

    with pytest.raises(NativeBuildError, match=r"no C\+\+ compiler is installed"):
        compile_once(tmp_path, print)


def test_what_a_failing_compiler_says_is_the_reason_and_nothing_stays(only_program, tmp_path):
    only_program("g++", "#!/bin/sh\necho 'unknown flag' >&2\nexit 1\n")

    with pytest.raises(NativeBuildError, match=r"g\+\+ failed: unknown flag"):
        compile_once(tmp_path / "made", print)
    assert not list((tmp_path / "made").glob("*.so"))
    assert not list((tmp_path / "made").glob("build-*"))


def test_a_folder_that_can_t_be_written_is_a_reason(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(NativeBuildError, match="file"):
        compile_once(tmp_path / "file", print)


@pytest.mark.usefixtures("another_name")
def test_a_damaged_library_is_removed(tmp_path):
    library_path(tmp_path).write_text("no library")

    with pytest.raises(NativeBuildError, match=r"file too short|invalid ELF header"):
        load_ops(tmp_path, print)
    assert not library_path(tmp_path).exists()
