"""What single tokens say, in text and in bytes: for log probabilities. Pure.

A token may be part of a character; its text is then what a reader would see of it, its bytes are
exact.
"""

import re
from dataclasses import dataclass

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class TokenText:
    """A token's text, with replacement characters for what is no whole character, and its bytes."""

    text: str
    data: bytes


def token_text(piece: str, *, is_byte_level: bool, is_added: bool) -> TokenText:
    """What a vocabulary's piece stands for. `is_added`: it stands for itself."""
    if is_added:
        data = piece.encode()
    elif is_byte_level:
        alphabet = _byte_alphabet()
        data = b"".join(
            bytes([alphabet[char]]) if char in alphabet else char.encode() for char in piece
        )
    elif byte := _BYTE.fullmatch(piece):
        data = bytes([int(byte[1], 16)])
    else:
        data = piece.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode(errors="replace")
    return TokenText(data.decode(errors="replace"), data)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's: printable bytes stand for themselves, the others for characters from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    alphabet.update({chr(256 + number): byte for number, byte in enumerate(others)})
    return alphabet


def is_text(text: str) -> bool:
    """Whether it has no half of a character, which escapes in JSON may stand for."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
