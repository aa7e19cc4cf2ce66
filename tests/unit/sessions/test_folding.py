"""Text as it is searched, and what is shown of a text that was found."""

import pytest

from sessions.folding import composed, excerpt, fold


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Crème Brûlée", "creme brulee"),
        ("e\u0301", "e"),
        ("ÅNGSTRÖM", "angstrom"),
        ("Straße", "straße"),
        ("İ", "i"),
        ("한국어 日本語 🙂", "한국어 日本語 🙂"),
    ],
)
def test_case_and_accents_go_and_places_stay(text, folded):
    assert fold(text) == folded
    assert len(fold(text)) == len(composed(text))


def test_an_excerpt_stands_around_the_first_word_and_marks_them_all():
    text = "word " * 100 + "the Fjörds of Norway" + " word" * 100

    snippet, places = excerpt(text, ["fjords", "nor"])

    assert [snippet[a:b] for a, b in places] == ["Fjörds", "Norway"]
    assert snippet.startswith("…word ")
    assert snippet.endswith("…")
    assert len(snippet) <= 162


@pytest.mark.parametrize("before", [0, 1, 4090, 4095, 4096, 4097, 20_478, 20_480, 100_000])
def test_a_word_is_found_wherever_pieces_of_the_text_meet(before):
    text = ("fjordson " + "x" * before)[: max(before - 1, 0)] + " Fjord, and on" + " x" * 99

    snippet, places = excerpt(text, ["fjord", "an"])

    assert [snippet[a:b] for a, b in places] == ["Fjord", "and"]


def test_what_only_begins_with_a_word_or_ends_with_it_is_none_where_pieces_meet():
    text = "x" * 4090 + "fjordfjord" + "y" * 4090 + " a fjord"

    snippet, places = excerpt(text, ["fjord", "zz"])

    assert [snippet[a:b] for a, b in places] == ["fjord"]
    assert snippet == "…a fjord"


def test_a_text_in_which_no_word_stands_as_such_shows_its_beginning():
    assert excerpt("short", ["long"]) == ("short", ())
    assert excerpt("short", ["++"]) == ("short", ())
