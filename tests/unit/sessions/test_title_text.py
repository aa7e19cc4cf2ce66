"""A title is one line of a few words, whatever a small model says."""

import pytest

from sessions.title_text import MAX_TITLE_CHARS, first_words, title_request, to_title


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Fjords of Norway", "Fjords of Norway"),
        ('"Fjords of Norway."', "Fjords of Norway"),
        ("Title: Fjords", "Fjords"),
        ("**Title:** Fjords", "Fjords"),
        ("The title is: Fjords", "Fjords"),
        ("\n\n# Fjords\nMore words", "Fjords"),
        ("“Fjorde”", "Fjorde"),
        ("«Les fjords»", "Les fjords"),
        ("How deep is it?", "How deep is it?"),
        ("Titles of books", "Titles of books"),
        ("fjords\x00\x1b of\tNorway", "fjords of Norway"),
        (
            "Deep fjords and high mountains between the sea and the wide old forests",
            "Deep fjords and high mountains between the sea and the wide…",
        ),
    ],
)
def test_what_is_around_a_title_goes(answer, title):
    assert to_title(answer) == title


@pytest.mark.parametrize(
    "answer",
    [
        "",
        " \n",
        '""',
        "…!",
        "123",
        "Sure! Here is a title",
        "Here's one:",
        "I'm sorry, I can't",
        "As an AI model",
        "the the the the the",
        "A title:",
        "word " * 30,
    ],
)
def test_what_is_no_title_is_none(answer):
    assert to_title(answer) is None


def test_first_words_are_whole_words_of_the_first_text_that_has_any():
    assert first_words("How deep?\nAnd how wide?", "x") == "How deep? And how wide?"
    assert first_words("???", "Yes") == "Yes"
    assert first_words("?", "") is None
    long = first_words("word " * 50)
    assert len(long) <= MAX_TITLE_CHARS
    assert long.endswith("word…")
    assert len(first_words("x" * 500)) == MAX_TITLE_CHARS


def test_the_model_is_told_the_beginning_and_no_more():
    asked = title_request("q" * 10_000, "r" * 10_000)

    assert sum(len(message.text) for message in asked) < 1300
