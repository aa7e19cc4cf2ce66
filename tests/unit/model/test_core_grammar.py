"""The engine core with grammars: every reply is complete and valid, whatever happens on the way."""

import json

import jsonschema
import pytest

from benchmarks.dense import tiny_llama
from model.config import SamplingParams
from model.errors import InvalidGenerationError
from model.grammar import Grammar, GrammarKind
from model.messages import FinishReason
from tests.support.grammars import (
    EOS,
    Words,
    make_grammars,
    params,
    random_schema,
    regex,
    schema,
    tokenizer,
)
from tests.support.tiny_model import Harness, make_request, random_ids

WORDS = len(tokenizer())


def make_harness(**options) -> Harness:
    config = tiny_llama()
    config.vocab_size = WORDS
    config.max_position_embeddings = 4096
    options = {"shadow": True, "num_blocks": 1024, **options}
    harness = Harness(config, tokenizer=Words(tokenizer()), **options)
    harness.core.grammars = make_grammars()
    return harness


def ask(harness, request_id, grammar, **fields):
    return harness.generate(
        make_request(
            request_id,
            random_ids(1, 6),
            conversation_id=None,
            params=params(grammar, max_output_tokens=2000, **fields),
        )
    )


def _valid(seeds) -> None:
    harness = make_harness()
    for seed in seeds:
        form = random_schema(seed)
        reply = ask(harness, f"r{seed}", schema(form), seed=seed)
        assert reply.finished.reason is FinishReason.STOP, (form, reply.finished.text[-200:])
        jsonschema.validate(json.loads(reply.finished.text), form)
        assert reply.text == reply.finished.text


def test_replies_of_random_bounded_schemas_are_complete_and_valid():
    _valid(range(40))


@pytest.mark.full
def test_replies_of_two_hundred_random_bounded_schemas_are_complete_and_valid():
    _valid(range(1000, 1200))


def test_a_real_model_is_held_to_a_schema_greedily_and_by_drawing():
    harness = make_harness(shadow=False, num_blocks=256)
    form = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["n"],
        "additionalProperties": False,
    }
    for number, temperature in enumerate((0.0, 1.0)):
        reply = ask(harness, f"r{number}", schema(form), temperature=temperature)
        assert reply.finished.reason is FinishReason.STOP
        jsonschema.validate(json.loads(reply.finished.text), form)


def test_lark_and_regex_are_followed():
    harness = make_harness()
    lark = Grammar(kind=GrammarKind.LARK, text='start: "yes" | "no" " "? "way"')

    assert ask(harness, "lark", lark).finished.text in ("yes", "noway", "no way")
    assert ask(harness, "regex", regex("[0-9]{3}")).finished.text.isdigit()


def test_a_reply_ends_where_nothing_can_follow_though_end_tokens_are_ignored():
    reply = ask(make_harness(), "r", regex("abc"), ignore_eos=True)

    assert (reply.finished.reason, reply.finished.text) == (FinishReason.STOP, "abc")


def test_bias_and_penalties_cannot_bring_a_forbidden_token_in():
    bias = tuple((i, 100.0) for i in tokenizer().encode("xyz"))

    reply = ask(
        make_harness(), "r", regex("[ab]{8}"), logit_bias=bias, repetition_penalty=2.0, top_k=3
    )

    assert set(reply.finished.text) <= {"a", "b"}
    assert len(reply.finished.text) == 8


def test_a_reply_that_is_cut_by_its_length_is_incomplete():
    reply = make_harness().generate(
        make_request("r", [1, 2], params=params(regex("a{50}"), max_output_tokens=3))
    )

    assert reply.finished.reason is FinishReason.LENGTH
    assert set(reply.finished.text) == {"a"}


def test_a_stop_string_ends_a_reply_in_the_midst_of_its_form():
    reply = ask(make_harness(), "r", regex("abcdef"), stop=("de",))

    assert (reply.finished.reason, reply.finished.text) == (FinishReason.STOP, "abc")
    assert tokenizer().decode(list(reply.finished.token_ids)) == "abc"


def test_a_preempted_reply_goes_on_in_its_form():
    grammars = [regex(f"{letter}{{24}}") for letter in "abcd"]
    alone = [ask(make_harness(), "r", g, seed=i) for i, g in enumerate(grammars)]
    harness = make_harness(num_blocks=14)
    for number, grammar in enumerate(grammars):
        request = make_request(
            f"r{number}",
            random_ids(number, 6),
            conversation_id=None,
            params=params(grammar, seed=number),
        )
        harness.submit(request)
    harness.run()

    replies = [harness.replies[f"r{number}"] for number in range(4)]
    assert sum(r.finished.num_preemptions for r in replies) > 0
    assert [r.finished.text for r in replies] == [r.finished.text for r in alone]


def test_an_engine_that_takes_over_goes_on_where_the_form_was():
    first = ask(make_harness(), "r", regex("[ab]{6}[cd]{6}"))
    ids = first.finished.token_ids

    again = make_harness().generate(
        make_request(
            "r",
            random_ids(1, 6),
            conversation_id=None,
            params=params(regex("[ab]{6}[cd]{6}"), max_output_tokens=2000),
            resumed_ids=ids[:5],
        )
    )

    assert again.finished.text == first.finished.text
    assert tuple(again.sampled) == ids[5:]


def test_what_is_resumed_outside_the_form_fails_alone():
    harness = make_harness()
    ids = tokenizer().encode("xyz")

    harness.submit(
        make_request("r", [1, 2], params=params(regex("[ab]{6}")), resumed_ids=tuple(ids))
    )

    error = harness.replies["r"].error
    assert isinstance(error, InvalidGenerationError)
    assert error.param == "grammar"
    assert not harness.core.has_work


def test_a_form_that_cannot_be_is_refused_before_anything_is_computed():
    harness = make_harness()
    with pytest.raises(InvalidGenerationError) as caught:
        harness.core.submit(make_request("r", [1], params=params(regex("["))))

    assert caught.value.param == "grammar"
    assert not harness.core.has_work


def test_without_a_compiler_a_form_is_refused():
    harness = make_harness()
    harness.core.grammars = None

    with pytest.raises(InvalidGenerationError, match="no form here"):
        harness.core.submit(make_request("r", [1], params=params(regex("a"))))


def test_replies_with_and_without_forms_share_a_step():
    harness = make_harness()
    harness.submit(make_request("free", [1, 2, 3], max_output_tokens=6))
    harness.submit(make_request("bound", [1, 2, 3], params=params(regex("a{5}"))))
    harness.run()

    alone = make_harness().generate(make_request("free", [1, 2, 3], max_output_tokens=6))
    assert harness.replies["free"].finished.token_ids == alone.finished.token_ids
    assert harness.replies["bound"].finished.text == "aaaaa"


def test_the_end_token_is_part_of_the_ids_when_it_is_drawn():
    reply = ask(make_harness(), "r", regex("a[b-z]*"), logit_bias=((EOS, 100.0),))

    assert reply.finished.token_ids[-1] == EOS
    assert reply.finished.text.startswith("a")


def test_params_without_a_form_are_as_they_were():
    assert SamplingParams().grammar is None
