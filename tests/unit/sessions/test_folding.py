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


def test_a_text_in_which_no_word_stands_as_such_shows_its_beginning():
    assert excerpt("short", ["long"]) == ("short", ())
    assert excerpt("short", ["++"]) == ("short", ())
