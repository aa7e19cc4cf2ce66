"""Tokens' likelihoods come with the text that the tokens made, and with no other."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.messages import SampledLogprobs, TokenLogprob
from sessions.likelihoods import (
    NEVER,
    AnswerLikelihoods,
    TokenLikelihood,
    likelihoods_of,
)
from sessions.reply_parser import TextDelta
from sessions.token_text import TokenText
from sessions.tools import Tool
from tests.support import tiny_tokenizer as tiny

CALL = '<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>'
SAID = f"<think>\nhm, so\n</think>\n\nI look, naïvely ☃.\n{CALL}"
CALLING = tiny.make_renderer(tiny.SMOLLM2).calling


def likely(data: bytes) -> TokenLikelihood:
    return TokenLikelihood(1, TokenText(data.decode(errors="replace"), data), -0.5, ())


def told(events, shares) -> list[tuple[str, list[bytes]]]:
    """The answer's pieces, each with the bytes of its tokens."""
    return [
        (event.text, [each.token.data for each in share])
        for event, share in zip(events, shares, strict=True)
        if isinstance(event, TextDelta)
    ]


@given(st.lists(st.integers(0, len(SAID.encode())), max_size=40))
def test_however_a_reply_is_cut_into_tokens_those_of_its_answer_spell_it(cuts):
    data = SAID.encode()
    places = sorted({0, *cuts, len(data)})
    parser, shares, spelled, text = (
        CALLING.parser((Tool(name="look"),)),
        AnswerLikelihoods(),
        b"",
        "",
    )
    waiting = b""
    for begin, end in pairwise(places):
        waiting += data[begin:end]
        whole = waiting.decode(errors="ignore")  # half a character waits
        waiting = waiting[len(whole.encode()) :]
        events = parser.feed(whole)
        for piece, tokens in told(events, shares.share([likely(data[begin:end])], events)):
            text += piece
            spelled += b"".join(tokens)
    rest = parser.finish()
    for piece, tokens in told(rest, shares.share((), rest)):
        text += piece
        spelled += b"".join(tokens)

    assert text == "I look, naïvely ☃."
    assert text.encode() in spelled
    # Tokens that reach over the answer's edges are whole all the same, and come once.
    assert spelled in data


@pytest.mark.parametrize("answer", [b"hi", b"in", b"think", b" hi", b"h"])
@pytest.mark.parametrize("thought", [(b"hm",), (b"hi",), (b"think",), (b"\n\n",), ()])
def test_an_answer_that_stands_in_the_tag_before_it_has_its_own_tokens(answer, thought):
    tokens = [b"<think>", *thought, b"</think>", b"\n\n", answer, b" there"]
    parser, shares, found = CALLING.parser(()), AnswerLikelihoods(), []
    for token in tokens:
        events = parser.feed(token.decode())
        found += told(events, shares.share([likely(token)], events))
    events = parser.finish()
    found += told(events, shares.share((), events))

    text = "".join(piece for piece, _ in found)
    assert text.split() == (answer + b" there").decode().split()
    own = [token for _, tokens in found for token in tokens if token.strip()]
    assert own == [answer, b" there"]


def test_text_that_comes_late_takes_the_tokens_that_waited():
    shares = AnswerLikelihoods()

    assert shares.share([likely(b"a"), likely(b"bEN")], [TextDelta("ab")]) == [
        (likely(b"a"), likely(b"bEN"))
    ]
    assert shares.share([likely(b"X")], [TextDelta("ENX")]) == [(likely(b"X"),)]
    # What a stop string cuts off never becomes text.
    assert shares.share([likely(b"E"), likely(b"ND")], []) == []


def test_where_tokens_spell_something_else_the_text_takes_all_that_wait():
    shares = AnswerLikelihoods()

    assert shares.share([likely(b"<1>"), likely(b"<2>")], [TextDelta("x")]) == [
        (likely(b"<1>"), likely(b"<2>"))
    ]


@pytest.mark.parametrize("logprob", [-0.25, -float("inf")])
def test_likelihoods_come_back_from_the_store_as_they_were(logprob):
    sampled = SampledLogprobs(TokenLogprob(1, -0.5), (TokenLogprob(2, logprob),))
    (entry,) = likelihoods_of([sampled], lambda ids: [TokenText("\ufffd", b"\xff")] * len(ids))

    assert TokenLikelihood.of_stored(entry.to_stored()) == entry
    assert entry.likeliest[0][1] == max(logprob, NEVER)
