"""What single tokens say, in text and bytes."""

import pytest

from sessions.token_text import TokenText, token_text
from tests.support.templates import renderer_of, tokenizer_of


@pytest.mark.parametrize(
    ("piece", "is_byte_level", "is_added", "text", "data"),
    [
        ("\u0120the", True, False, " the", b" the"),
        ("\u00f0\u0141", True, False, "\ufffd", b"\xf0\x9f"),
        ("\u010a", True, False, "\n", b"\n"),
        ("\u2581the", False, False, " the", b" the"),
        ("<0xE2>", False, False, "\ufffd", b"\xe2"),
        ("<|im_end|>", True, True, "<|im_end|>", b"<|im_end|>"),
        ("é", False, False, "é", "é".encode()),
    ],
)
def test_a_piece_says_its_text_and_its_bytes(piece, is_byte_level, is_added, text, data):
    made = token_text(piece, is_byte_level=is_byte_level, is_added=is_added)

    assert made == TokenText(text, data)


def test_the_bytes_of_a_texts_tokens_add_up_to_it():
    text = "naïve ☃ 👩‍👩‍👧 \t x"
    ids = tokenizer_of("chatml").encode(text, add_special_tokens=False)

    tokens = renderer_of("chatml").tokens(ids)

    assert b"".join(token.data for token in tokens).decode() == text
