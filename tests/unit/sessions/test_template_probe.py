"""Every kind of template is seen for what it is."""

import pytest

from sessions.reasoning import ReasoningTags
from tests.support import tiny_tokenizer as tiny
from tests.support.templates import FAMILIES, renderer_of

EVERYTHING, ANSWERS, NOTHING = "everything", "answers", "nothing"


def kind(everything: bool, answers: bool) -> str:
    return EVERYTHING if everything else ANSWERS if answers else NOTHING


@pytest.mark.parametrize(
    ("name", "bare", "behind_system"),
    [
        ("chatml", EVERYTHING, EVERYTHING),
        ("chatml_named", EVERYTHING, EVERYTHING),
        ("llama3", EVERYTHING, EVERYTHING),
        ("mistral", EVERYTHING, NOTHING),  # there the system message moves along
        ("gemma", EVERYTHING, NOTHING),  # there is no system message
        ("qwen3", ANSWERS, ANSWERS),
        ("qwen3_thinking", ANSWERS, ANSWERS),
        ("dated", EVERYTHING, EVERYTHING),
        ("numbered", NOTHING, NOTHING),
        ("tools", NOTHING, NOTHING),
    ],
)
def test_what_a_template_appends_is_found_out(name, bare, behind_system):
    traits = renderer_of(name).traits

    assert kind(traits.appends_bare, traits.appends_answers_bare) == bare
    instructed = traits.appends_behind_system, traits.appends_answers_behind_system
    assert kind(*instructed) == behind_system


@pytest.mark.parametrize(
    ("name", "closing"),
    [
        ("chatml", "<|im_end|>\n"),
        ("chatml_named", "<|im_end|>\n"),
        ("llama3", "<|eot_id|>"),
        ("mistral", "</s>"),
        ("gemma", "<end_of_turn>\n"),
        ("qwen3", "<|im_end|>\n"),
        ("qwen3_thinking", "<|im_end|>\n"),
        ("dated", "<|im_end|>\n"),
        ("numbered", "<|im_end|>\n"),
        ("tools", "<|im_end|>\n"),
    ],
)
def test_what_closes_a_reply_is_found_out(name, closing):
    assert renderer_of(name).traits.closing == closing


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_template_says_of_its_own_is_found_out(name):
    said = renderer_of(name).traits.default_system

    assert said == ("You are a helpful assistant." if name == "chatml_named" else "")


def test_the_embedded_models_own_words_are_found_out():
    said = tiny.make_renderer(tiny.SMOLLM2).traits.default_system

    assert said.startswith("You are a helpful AI assistant named SmolLM")


@pytest.mark.parametrize("name", FAMILIES)
def test_who_takes_a_system_message_and_who_wants_roles_to_alternate(name):
    traits = renderer_of(name).traits

    assert traits.takes_system == (name != "gemma")
    assert traits.takes_runs == traits.takes_late_system == (name not in ("gemma", "mistral"))
    assert renderer_of(name).minds_system == (name in ("mistral", "numbered", "tools"))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_prompt_that_opens_the_reasoning_is_seen(name):
    assert renderer_of(name).traits.opens_reasoning == (name == "qwen3_thinking")


@pytest.mark.parametrize(
    ("source", "tags"),
    [
        (tiny.CHATML, ReasoningTags("<think>", "</think>")),
        (tiny.CHATML + "{# [THINK] [/THINK] #}", ReasoningTags("[THINK]", "[/THINK]")),
        (
            tiny.CHATML + "{# <seed:think> </seed:think> #}",
            ReasoningTags("<seed:think>", "</seed:think>"),
        ),
    ],
)
def test_the_tags_of_reasoning_are_the_templates_own_or_the_usual_ones(source, tags):
    assert tiny.make_renderer(source).traits.tags == tags


def test_a_clock_with_seconds_does_not_look_like_a_past_that_changes():
    ticking = "{{ 'It is ' + strftime_now('%H:%M:%S') + '.\n' }}" + tiny.CHATML
    traits = tiny.make_renderer(ticking).traits

    assert traits.appends_bare
    assert traits.appends_behind_system
