"""Each architecture against plain transformers, and its row in the documents."""

import pytest
import torch

from benchmarks.architectures import PAGE, Finding, page, try_refused, try_served
from benchmarks.tiny_configs import REFUSED, SERVED

DOCUMENT = PAGE.read_text(encoding="utf-8")
ROWS = [line for line in DOCUMENT.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("architecture", SERVED, ids=lambda a: a.name)
def test_a_served_architecture_gives_the_dense_models_tokens_and_the_documents_say_so(architecture):
    finding = try_served(architecture, torch.device("cpu"))

    assert finding.is_good, finding.row
    assert finding.row in ROWS, "run `make docs`"


@pytest.mark.parametrize("architecture", REFUSED, ids=lambda a: a.name)
def test_a_refused_architecture_is_refused_with_the_documented_reason(architecture):
    finding = try_refused(architecture)

    assert finding.is_good, finding.row
    assert finding.row in ROWS, "run `make docs`"


def test_the_document_holds_those_architectures_alone_and_is_otherwise_as_written():
    names = [row.split(" | ")[0].removeprefix("| ") for row in ROWS]
    served = [Finding(row, is_good=True) for row in ROWS[1 : 1 + len(SERVED)]]
    refused = [Finding(row, is_good=True) for row in ROWS[2 + len(SERVED) :]]

    expected = ["architecture", *(a.name for a in SERVED), "architecture"]
    assert names == [*expected, *(a.name for a in REFUSED)]
    assert page(served, refused) == DOCUMENT
