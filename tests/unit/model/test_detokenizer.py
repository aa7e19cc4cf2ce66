"""From ids to text a token at a time, and where stop strings cut it, on all kinds of tokenizers."""

from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from model.detokenizer import IncrementalDecoder, ReplyText, StopMatcher
from tests.support.text_tokenizers import (
    SAMPLES,
    SPECIAL,
    byte_level,
    metaspace,
    sentencepiece_like,
)

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
KINDS = {f.__name__: cache(f) for f in (byte_level, sentencepiece_like, metaspace)}
kinds = st.sampled_from(sorted(KINDS))
# Whole samples as well as their characters in any order.
pieces = st.sampled_from([*SAMPLES, *sorted(set("".join(SAMPLES))), " ", "\n"])
texts = st.lists(pieces, min_size=1, max_size=12).map("".join)
thorough = settings(max_examples=150, derandomize=True, deadline=None)


def decode_with(tokenizer: Tokenizer):
    return lambda token_ids: tokenizer.decode(token_ids, skip_special_tokens=True)


def push_all(tokenizer, token_ids) -> list[str]:
    decoder = IncrementalDecoder(decode_with(tokenizer))
    return [decoder.push(token_id) for token_id in token_ids]


# Decoding


@given(kinds, texts)
@thorough
def test_what_is_pushed_adds_up_to_the_text(kind, text):
    tokenizer = KINDS[kind]()
    token_ids = tokenizer.encode(text).ids

    pushed = push_all(tokenizer, token_ids)

    assert "".join(pushed) == tokenizer.decode(token_ids)
    assert not any(REPLACEMENT in part for part in pushed)


@given(kinds, texts, st.data())
@thorough
def test_special_tokens_are_left_out_and_join_nothing(kind, text, data):
    tokenizer = KINDS[kind]()
    token_ids = tokenizer.encode(text).ids
    special = tokenizer.token_to_id(SPECIAL)
    for at in data.draw(st.lists(st.integers(0, len(token_ids)), max_size=4)):
        token_ids.insert(at, special)

    assert "".join(push_all(tokenizer, token_ids)) == tokenizer.decode(token_ids)


@given(st.lists(st.integers(0, 419), max_size=40))
@thorough
def test_any_ids_add_up_to_their_text_but_for_a_character_that_never_became_whole(token_ids):
    tokenizer = KINDS["byte_level"]()
    whole = tokenizer.decode(token_ids)

    pushed = "".join(push_all(tokenizer, token_ids))

    assert whole.startswith(pushed)
    assert not whole.removeprefix(pushed).strip(REPLACEMENT)


@given(st.lists(st.integers(0, 350), max_size=40))
@thorough
def test_a_run_of_broken_byte_tokens_is_shown_as_broken_and_the_text_around_it_whole(token_ids):
    tokenizer = KINDS["sentencepiece_like"]()
    letters = [t for t in token_ids if not tokenizer.id_to_token(t).startswith("<0x")]
    whole = tokenizer.decode(token_ids)

    pushed = "".join(push_all(tokenizer, token_ids))

    if REPLACEMENT not in whole:
        assert pushed == whole
    for word in tokenizer.decode(letters).split():
        assert all(letter in pushed for letter in word)


def test_a_character_comes_with_its_last_byte_and_its_neighbours_do_not_wait():
    tokenizer = KINDS["byte_level"]()
    alphabet = {c: i for c, i in tokenizer.get_vocab().items() if len(c) == 1}
    assert len(alphabet) == 256
    token_ids = [
        tokenizer.token_to_id(c) for c in ("a", "ð", "Ł", "ĺ", "Ģ", "b")
    ]  # the bytes of a 😀 between two letters

    assert push_all(tokenizer, token_ids) == ["a", "", "", "", "😀", "b"]


def test_tokens_that_begin_and_end_inside_characters_are_shown_as_these_become_whole():
    head, tail = "中".encode()[:1], "中".encode()[1:]
    tokens = (head, tail + head, tail)
    decoder = IncrementalDecoder(
        lambda ids: b"".join(tokens[i] for i in ids).decode(errors="replace")
    )

    shown = [decoder.push(token_id) for token_id in (0, *[1] * 30, 2)]

    assert shown == ["", *["中"] * 31]


def test_broken_bytes_do_not_take_a_character_behind_them_along():
    tokenizer = KINDS["byte_level"]()
    lone = tokenizer.token_to_id("Ģ")  # 0x80
    emoji = [tokenizer.token_to_id(c) for c in ("ð", "Ł", "ĺ", "Ģ")]
    for num_broken in range(1, 20):
        text = "".join(push_all(tokenizer, [lone] * num_broken + emoji))
        assert text == REPLACEMENT * num_broken + "😀"


def test_broken_bytes_are_not_waited_for_forever():
    tokenizer = KINDS["byte_level"]()

    pushed = push_all(tokenizer, [tokenizer.token_to_id("Ģ")] * 40)

    assert len("".join(pushed)) >= 32
    longest, waiting = 0, 0
    for text in pushed:
        waiting = 0 if text else waiting + 1
        longest = max(longest, waiting)
    assert longest < 8


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_reply_is_decoded_in_short_windows(kind):
    tokenizer = KINDS[kind]()
    token_ids = tokenizer.encode(" ".join(SAMPLES[:1] * 20)).ids
    sizes: list[int] = []

    def decode(ids):
        sizes.append(len(ids))
        return tokenizer.decode(ids)

    decoder = IncrementalDecoder(decode)
    assert "".join(map(decoder.push, token_ids)) == " ".join(SAMPLES[:1] * 20)

    assert max(sizes) < 12
    assert len(sizes) < 1.3 * len(token_ids)  # a decode a token, and one now and then


@pytest.mark.parametrize("kind", KINDS)
def test_many_special_tokens_do_not_make_the_window_grow(kind):
    tokenizer = KINDS[kind]()
    sizes: list[int] = []

    def decode(ids):
        sizes.append(len(ids))
        return tokenizer.decode(ids)

    decoder = IncrementalDecoder(decode)
    for token_id in [*tokenizer.encode("Hello,").ids, *[tokenizer.token_to_id(SPECIAL)] * 100]:
        decoder.push(token_id)

    assert max(sizes) < 12
    (word,) = tokenizer.encode("you").ids[:1]
    assert decoder.push(word) == tokenizer.decode(
        [*tokenizer.encode("Hello,").ids, word]
    ).removeprefix("Hello,")


# Stop strings


def first_stop(text: str, stops) -> int | None:
    """Where the first stop string to be complete begins, looking letter by letter."""
    for end in range(1, len(text) + 1):
        found = [end - len(s) for s in stops if text[:end].endswith(s)]
        if found:
            return min(found)
    return None


@given(
    st.text("abc", max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(1, 5), min_size=30),
)
@example("abcd", ["abcd", "bc"], [4] * 30)
@thorough
def test_a_text_stops_at_the_same_place_however_it_comes_in(text, stops, sizes):
    matcher, shown, rest = StopMatcher(stops), "", text
    is_stopped = False
    for size in sizes:
        if is_stopped or not rest:
            break
        part, rest = rest[:size], rest[size:]
        more, is_stopped = matcher.push(part)
        shown += more
        assert is_stopped or (shown + matcher._held) == text[: len(text) - len(rest)]
    at = first_stop(text, stops)

    assert is_stopped is (at is not None)
    if is_stopped:
        assert shown == text[:at]
    else:
        assert shown + matcher.finish() == text


def test_what_may_yet_become_a_stop_string_waits_and_nothing_else():
    matcher = StopMatcher(["STOP", "TOPS"])

    assert matcher.push("a") == ("a", False)
    assert matcher.push("bST") == ("b", False)
    assert matcher.push("O") == ("", False)
    assert matcher.push("x") == ("STOx", False)
    assert matcher.push("TOP") == ("", False)
    assert matcher.finish() == "TOP"
    assert matcher.finish() == ""


def test_the_longer_of_two_that_end_together_cuts_off_more():
    assert StopMatcher(["\n", "\n\n"]).push("a\n\n") == ("a", True)
    assert StopMatcher(["c", "abc"]).push("xabc") == ("x", True)


def test_the_one_that_is_complete_first_wins_over_one_that_began_before():
    assert StopMatcher(["abcd", "bc"]).push("abcd") == ("a", True)


# A whole reply


def run_reply(tokenizer, token_ids, stops) -> tuple[ReplyText, list[str], bool, int]:
    """The reply, its parts, whether it stopped, and after how many tokens."""
    reply, parts, finals = ReplyText(decode_with(tokenizer), stops), [], [0]
    for num, token_id in enumerate(token_ids, 1):
        text, is_stopped = reply.push(token_id)
        parts.append(text)
        assert finals[-1] <= reply.num_final_tokens <= num
        finals.append(reply.num_final_tokens)
        if is_stopped:
            assert max(finals) <= reply.cut().num_tokens
            return reply, parts, True, num
    parts.append(reply.finish())
    return reply, parts, False, len(token_ids)


@given(kinds, texts, st.data())
@thorough
def test_a_reply_stops_at_any_place_in_its_tokens(kind, text, data):
    tokenizer = KINDS[kind]()
    token_ids = tokenizer.encode(text).ids
    text = tokenizer.decode(token_ids)
    stops = []
    for _ in range(data.draw(st.integers(0, 2))):
        begin = data.draw(st.integers(0, max(0, len(text) - 1)))
        stops.append(text[begin : begin + data.draw(st.integers(1, 5))])
    stops = [s for s in stops if s]

    reply, parts, is_stopped, _ = run_reply(tokenizer, token_ids, stops)

    at = first_stop(text, stops)
    assert is_stopped is (at is not None)
    assert "".join(parts) == reply.text == text[:at]


@given(texts, st.data())
@thorough
def test_the_tokens_before_a_stop_and_the_rest_encoded_again_are_the_text(text, data):
    tokenizer = KINDS["byte_level"]()
    token_ids = tokenizer.encode(text).ids
    begin = data.draw(st.integers(0, len(text) - 1))
    stop = text[begin : begin + data.draw(st.integers(1, 5))]

    reply, _, is_stopped, num_pushed = run_reply(tokenizer, token_ids, [stop])

    assert is_stopped
    cut = reply.cut()
    assert cut.num_tokens < num_pushed
    kept = token_ids[: cut.num_tokens]
    assert tokenizer.decode(kept) + cut.rest == reply.text
    assert tokenizer.decode([*kept, *tokenizer.encode(cut.rest).ids]) == reply.text
    # No more is given up than the tokens that the stop string lies in.
    whole = [n for n in range(num_pushed) if reply.text.startswith(tokenizer.decode(token_ids[:n]))]
    assert cut.num_tokens == max(whole)


def test_a_stop_at_a_token_s_beginning_keeps_every_token_before_it():
    reply = ReplyText(lambda ids: "".join(["one", " two", "STOP"][i] for i in ids), ["STOP"])

    shown = [reply.push(i) for i in range(3)]

    assert shown == [("one", False), (" two", False), ("", True)]
    assert (reply.cut().num_tokens, reply.cut().rest, reply.text) == (2, "", "one two")


def test_tokens_that_may_yet_be_cut_are_not_final():
    reply = ReplyText(lambda ids: "".join(["a", "b", "c", "x"][i] for i in ids), ["bcd"])
    finals = []
    for token_id in (0, 1, 2, 3):
        reply.push(token_id)
        finals.append(reply.num_final_tokens)

    assert finals == [1, 1, 1, 4]


def test_a_token_inside_a_character_is_not_final():
    tokenizer = KINDS["byte_level"]()
    reply = ReplyText(decode_with(tokenizer), [])
    finals = []
    for letter in ("a", "ð", "Ł", "ĺ", "Ģ"):
        reply.push(tokenizer.token_to_id(letter))
        finals.append(reply.num_final_tokens)

    assert finals == [1, 1, 1, 1, 5]


def test_the_end_gives_what_was_held_back_and_drops_half_a_character():
    tokenizer = KINDS["byte_level"]()
    reply = ReplyText(decode_with(tokenizer), ["bcd"])
    pushed = [reply.push(tokenizer.token_to_id(c)) for c in ("a", "b", "c", "ð", "Ł")]

    assert pushed[0] == ("a", False)
    assert "".join(text for text, _ in pushed) + reply.finish() == reply.text == "abc"
    assert reply.num_final_tokens == 5


def test_a_reply_of_no_tokens_has_no_text():
    reply = ReplyText(lambda ids: "", ["x"])

    assert (reply.finish(), reply.text, reply.num_final_tokens) == ("", "", 0)
