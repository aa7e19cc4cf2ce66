"""Bytes become checked values, or an error that names the place."""

import asyncio

import orjson
import pytest
from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request
from pydantic import BaseModel, ConfigDict

from app.errors import PeerGoneError
from app.parsing import read_json, read_object, validate
from sessions.errors import InvalidInputError
from sessions.nesting import MAX_NESTING


class _Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    count: int


class _Outer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    items: list[_Inner]


def test_broken_json_is_told_by_line_and_column():
    with pytest.raises(InvalidInputError, match=r"line 2, column 7"):
        read_json(b'{\n  "a" 1}')


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 50_000, b"NaN", b'"\xff"', b"1e999"])
def test_hostile_json_is_refused_and_nothing_crashes(text):
    with pytest.raises(InvalidInputError):
        read_json(text)


def test_what_stands_too_deep_to_be_told_again_is_refused():
    deepest = b"[" * MAX_NESTING + b"1" + b"]" * MAX_NESTING
    assert orjson.dumps({"error": {"repeated": read_json(deepest)}})

    with pytest.raises(InvalidInputError, match="nested"):
        read_json(b'{"a": %s}' % deepest)
    assert read_json(b"[%s1]" % (b"[]," * 1000))  # wide is not deep


def test_a_number_too_large_for_a_word_is_not_a_count():
    value = read_json(b'{"items": [{"count": %s}]}' % (b"9" * 300))

    with pytest.raises(InvalidInputError) as caught:
        validate(_Outer, value)
    assert caught.value.param == "items[0].count"


def test_an_unknown_field_is_named():
    with pytest.raises(InvalidInputError, match="unknown field") as caught:
        validate(_Outer, {"items": [{"count": 1, "colour": "red"}]})
    assert caught.value.param == "items[0].colour"


def test_a_misspelt_field_is_told_the_nearest():
    with pytest.raises(InvalidInputError, match="itmes: unknown field; did you mean items\\?"):
        validate(_Outer, {"itmes": []})


def test_a_misspelt_field_within_is_told_the_nearest_of_its_place():
    with pytest.raises(InvalidInputError, match="did you mean count\\?") as caught:
        validate(_Outer, {"items": [{"cuont": 1}]})
    assert caught.value.param == "items[0].cuont"


def test_a_missing_field_is_named():
    with pytest.raises(InvalidInputError, match="items: this field is required"):
        validate(_Outer, {})


def test_an_error_never_repeats_what_was_sent():
    with pytest.raises(InvalidInputError) as caught:
        validate(_Outer, {"items": [{"count": "my secret"}]})
    assert "secret" not in str(caught.value)


async def test_a_client_that_leaves_in_mid_body_is_gone_and_no_error_of_ours():
    body = StreamReader(BaseProtocol(asyncio.get_running_loop()), limit=2**16)
    body.feed_data(b"{")
    body.set_exception(ConnectionResetError("Connection lost"))

    with pytest.raises(PeerGoneError):
        await read_object(make_mocked_request("POST", "/", payload=body))
