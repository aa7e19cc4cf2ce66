"""The rules that no linter knows, kept by machine (CONTRIBUTING.md has them in words)."""

import ast
import importlib
import inspect
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("app", "sessions", "model", "splice")
CODE = ("app", "sessions", "model", "splice", "migrations", "benchmarks", "tests")

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 7
MAX_TRACKED_BYTES = 600_000

FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "interfaces"}
MANAGERS = {"SessionManager", "CacheManager"}

# A boundary turns whatever happens into a visible state, and logs it with its traceback.
CATCHES_EVERYTHING = {
    "app/errors.py",  # `boundary`, around a request and a start: an error with the request's id
    "model/compiled/builder.py",  # what nobody needs: a bug there leaves the step as it was
    "model/tiers/mover.py",  # a tier's thread: a bug there is a miss, like any other fault
    "model/engine.py",  # between the supervisor and one generation, or one message, of many
    "model/worker.py",  # the engine process's outermost loop
    "sessions/preparation.py",  # the outermost frame of work ahead, which no turn depends on
    "sessions/titles.py",  # the outermost frame of a title, which nothing depends on
    "sessions/turn.py",  # a TurnRunner's outermost frame: a failed turn
}
READS_THE_ENVIRONMENT = {
    "app/settings.py",  # once, at start
    "app/traces_settings.py",  # OpenTelemetry's variables, likewise
    "model/process.py",  # to hand it on to the engine's process, whole
}
# transformers names what an attention function is called with.
MANY_PARAMETERS = {"model/attention/base.py"}


def _files(*folders: str) -> list[Path]:
    return sorted(p.relative_to(ROOT) for f in folders for p in (ROOT / f).rglob("*.py"))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


FILES = _files(*CODE)
SOURCES = _files(*LAYERS)
every_file = pytest.mark.parametrize("path", FILES, ids=str)
every_source = pytest.mark.parametrize("path", SOURCES, ids=str)


@every_file
def test_a_file_fits_in_the_head(path):
    num_lines = (ROOT / path).read_text(encoding="utf-8").count("\n")

    assert num_lines <= MAX_FILE_LINES, f"{num_lines} lines; split it by noun"


@every_file
def test_a_function_fits_on_the_screen(path):
    sizes = {f.name: (f.end_lineno or f.lineno) - f.lineno + 1 for f in _functions(_tree(path))}

    assert not {n: s for n, s in sizes.items() if s > MAX_FUNCTION_LINES}


@every_source
def test_a_function_takes_few_parameters(path):
    if path.as_posix() in MANY_PARAMETERS:
        return
    counts = {f.name: _num_parameters(f) for f in _functions(_tree(path))}

    assert not {n: c for n, c in counts.items() if c > MAX_PARAMETERS}


def _num_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    return len([n for n in names if n not in ("self", "cls")]) + len(function.args.kwonlyargs)


@every_file
def test_a_module_starts_by_saying_what_it_is_for(path):
    assert ast.get_docstring(_tree(path)) or not _tree(path).body


@every_source
def test_what_is_public_has_a_docstring(path):
    bare = [
        node.name
        for node in _tree(path).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]

    assert not bare


@every_file
def test_a_file_is_named_for_its_noun(path):
    assert not FORBIDDEN_NAMES & {path.stem, *path.parts}


@every_source
def test_two_classes_are_called_manager_and_no_more(path):
    names = {n.name for n in ast.walk(_tree(path)) if isinstance(n, ast.ClassDef)}

    assert {n for n in names if n.endswith("Manager")} <= MANAGERS


@every_source
def test_everything_is_caught_only_at_a_named_boundary(path):
    caught = [
        node.lineno
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ExceptHandler) and _catches_everything(node)
    ]

    assert not caught or path.as_posix() in CATCHES_EVERYTHING, f"lines {caught}"


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    # What is raised again at the end was only tidied up after, not caught.
    if handler.body and isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None:
        return False
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(k, ast.Name) and k.id in ("Exception", "BaseException") for k in kinds)


@every_source
def test_only_the_settings_read_the_environment(path):
    reads = [
        node.lineno
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    ]

    assert not reads or path.as_posix() in READS_THE_ENVIRONMENT, f"lines {reads}"


@every_file
def test_work_left_over_is_an_issue_and_not_a_remark(path):
    source = (ROOT / path).read_text(encoding="utf-8")

    assert not [word for word in ("TO" + "DO", "FIX" + "ME", "XX" + "X") if word in source]


@pytest.mark.parametrize("path", _files("tests"), ids=str)
def test_no_test_is_skipped(path):
    names = {n.attr for n in ast.walk(_tree(path)) if isinstance(n, ast.Attribute)}

    assert not names & {"skip", "skipif", "xfail", "importorskip"}


@pytest.mark.parametrize("family", ["model.errors", "sessions.errors"])
def test_an_error_family_is_complete_in_its_own_table(family):
    module = importlib.import_module(family)
    classes = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == family]
    table = inspect.getdoc(module) or ""

    for cls in classes:
        row = next((r for r in table.splitlines() if cls.__name__ in r.split()), None)
        assert row is not None, f"{cls.__name__} has no row"
        if cls.__base__ is not Exception:
            assert cls.code in row
            assert ("yes" if cls.retryable else "no") in row.split(), cls.__name__


def test_each_error_has_a_code_of_its_own():
    for family in ("model.errors", "sessions.errors"):
        module = importlib.import_module(family)
        classes = [c for _, c in inspect.getmembers(module, inspect.isclass)]
        codes = [c.code for c in classes if c.__module__ == family]

        assert len(codes) == len(set(codes))


def test_no_large_file_is_tracked():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]

    large = {p.name: p.stat().st_size for p in paths if p.is_file()}

    assert not {n: s for n, s in large.items() if s > MAX_TRACKED_BYTES}
