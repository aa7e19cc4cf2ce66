"""The table of architectures, from their trials: `python -m benchmarks architectures`.

Each is tried with both attention backends; what is refused is refused by the code that refuses it
at load. `--write` writes docs/architectures.md, and tests fail while a row there differs from what
its trial finds. Exits with 1 when one that should be served differs.
"""

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from benchmarks.dense import build_model
from benchmarks.tiny_configs import REFUSED, SERVED, Architecture
from benchmarks.trial import Trial
from model.attention.base import IMPLEMENTATION, AttentionBackend, register
from model.attention.batched import BatchedBackend
from model.attention.reference import ReferenceBackend
from model.errors import ModelLoadError
from model.runner import ModelShape
from model.self_check import check_answers
from model.support import refuse_unsupported, refuse_unsupported_weights

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architectures.md"
MAX_NEAR_TIES = 3
"""Of a trial's tokens. More would mean that the trial proves little."""

_INTRODUCTION = """# Architectures

Written by `python -m benchmarks architectures --write` (`make docs`) from what its trials find; a
test fails while a row differs.

A **trial** is a tiny random model in float32, with everything switched on that makes its
architecture special, against the same model in plain transformers (eager attention, the whole text
at once): ten turns, regenerate, fork, rewind, eviction, prompts in chunks, and a dozen
conversations preempting one another in a small pool. *Exact* means that every token was the dense
model's with both attention backends, `reference` and `batched`; a token may differ only where the
dense model's two best are within 1e-4. Windows are eleven tokens there, and histories many windows
long.

A model that isn't listed is not refused for that. At load, each layer's attention is looked at, and
a short text goes through the cache in scrambled pieces and through the model's own attention whole;
a model that the cache can't hold is refused with the reason.

## Served

| architecture | `model_type` | exact | window | notes |
|---|---|---|---|---|
"""
_REFUSED = """
## Refused

| architecture | `model_type` | because |
|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One architecture's row, and whether it is as it should be."""

    row: str
    is_good: bool


def main(arguments: list[str]) -> int:
    """Try them all; prints a row for each. The exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks architectures", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name}")
    options = parser.parse_args(arguments)
    transformers.logging.set_verbosity_error()
    device = torch.device(options.device)
    served = list(_shown(try_served(architecture, device) for architecture in SERVED))
    refused = list(_shown(try_refused(architecture) for architecture in REFUSED))
    if options.write:
        PAGE.write_text(page(served, refused), encoding="utf-8")
    return 0 if all(finding.is_good for finding in (*served, *refused)) else 1


def page(served: Iterable[Finding], refused: Iterable[Finding]) -> str:
    """The whole document."""
    rows = ["".join(f"{finding.row}\n" for finding in part) for part in (served, refused)]
    return _INTRODUCTION + rows[0] + _REFUSED + rows[1]


def try_served(architecture: Architecture, device: torch.device) -> Finding:
    """Run its trials, with each backend."""
    failures = []
    for backend in (ReferenceBackend(), BatchedBackend(device)):
        if failure := _failure(architecture, backend, device):
            failures.append(f"{backend.name}: {failure}")
    exact = f"no ({'; '.join(failures)})" if failures else "yes"
    cells = (architecture.name, f"`{architecture.model_type}`", exact, _window(architecture))
    return Finding(_row(*cells, architecture.note), is_good=not failures)


def try_refused(architecture: Architecture) -> Finding:
    """Load it as far as it gets."""
    try:
        config = architecture.config()
        refuse_unsupported(config)
        register()
        model = build_model(config, IMPLEMENTATION)
        refuse_unsupported_weights(model, config.model_type)
        check_answers(model, ModelShape.of(model), ReferenceBackend())
    except ModelLoadError as exc:
        _, _, reason = str(exc).partition("can't be served: ")
        row = _row(architecture.name, f"`{architecture.model_type}`", reason)
        return Finding(row, is_good=bool(reason))
    row = _row(architecture.name, f"`{architecture.model_type}`", "is not refused")
    return Finding(row, is_good=False)


def _failure(
    architecture: Architecture, backend: AttentionBackend, device: torch.device
) -> str | None:
    try:
        verdict = Trial(architecture.config(), backend, device).run()
    except (AssertionError, ModelLoadError) as exc:
        return str(exc)
    if verdict.near_ties > MAX_NEAR_TIES:
        return f"{verdict.near_ties} of {verdict.num_tokens} tokens are too near to tell"
    return None


def _window(architecture: Architecture) -> str:
    windows = ModelShape.of(build_model(architecture.config(), IMPLEMENTATION)).windows
    kinds = {window is not None for window in windows}
    if len(kinds) > 1:
        return "some layers"
    return "every layer" if kinds.pop() else "none"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(findings: Iterable[Finding]) -> Iterator[Finding]:
    for finding in findings:
        print(finding.row, flush=True)
        yield finding
