"""The benchmarks run, at a size that measures nothing."""

import json
import re

import pytest

from benchmarks import packing, reuse
from tests.support.fake_engine import INFO
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmarks")
    write_tiny_gguf(folder / "Tiny.gguf")
    model = ["--model", str(folder / "Tiny.gguf"), "--models-dir", str(folder / "models")]
    return [*model, "--histories", "20,40", "--new-tokens", "5", "--repeats", "2"]


def test_reuse_prints_a_row_for_each_history_with_what_was_computed(arguments, capsys):
    assert reuse.main(arguments) == 0

    rows = re.findall(
        r"^ +(\d+) +(\d+) +(\d+) +[\d.]+ ms +[\d.]+ ms", capsys.readouterr().out, re.M
    )
    # With reuse the new tokens and the reply's one token that was never fed.
    assert rows == [("20", "6", "25"), ("40", "6", "45")]


def test_the_cut_is_what_reuse_takes_off_the_time_to_the_first_token():
    pairs = [(reuse.Turn(6, kept, (1,)), reuse.Turn(25, 1.0, (1,))) for kept in (0.1, 0.2, 0.4)]

    (row,) = reuse.table(INFO, [reuse.Comparison(20, 5, pairs)])[2:]

    assert row.endswith("5.0x  (2.5 to 10.0)  80.0%")


def test_reuse_gives_every_sample_as_json(arguments, capsys):
    assert reuse.main([*arguments, "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert [h["history"] for h in document["histories"]] == [20, 40]
    for history in document["histories"]:
        assert [s["rows"] for s in history["kept"]] == [6, 6]
        assert all(s["first_token_s"] > 0 for s in (*history["kept"], *history["dropped"]))


def test_packing_prints_each_figure_with_every_bound(arguments, capsys):
    small = [
        "--rounds",
        "1",
        "--chats",
        "2",
        "--turns",
        "2",
        "--first-tokens",
        "9",
        "--replies",
        "2",
    ]
    long = ["--long-tokens", "120", "--num-blocks", "64", "--num-threads", "1"]

    assert packing.main([*arguments[:4], *small, *long, "--bounds", "0.05,9"]) == 0

    head, _, *rows = capsys.readouterr().out.strip().splitlines()
    assert head.startswith("| | 0.05 s | 9 s |")
    assert [row.split("|")[1].split(":")[0] for row in rows] == [" chats"] * 4 + [
        " long prompt"
    ] * 4
