"""What all owners may share of a prompt, and nothing more."""

from datetime import UTC, datetime

import pytest

from sessions.public_prefix import PublicPrefixes
from sessions.types import InputMessage
from tests.support.templates import FAMILIES, renderer_of

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SYSTEM = "You answer in rhymes."


def says(role, text):
    return InputMessage(role=role, text=text)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_prompt_s_public_start_is_the_same_whoever_speaks(family):
    renderer = renderer_of(family)
    public = PublicPrefixes(renderer, frozenset({SYSTEM}))
    lead = (says("system", SYSTEM),)

    num = public.count(lead, NOW)

    one = renderer.whole((*lead, says("user", "My secret is blue.")), clock_at=NOW)
    other = renderer.whole((*lead, says("user", "Rain?")), clock_at=NOW)
    assert num > 0
    assert one[:num] == other[:num]
    assert num == public.count(lead, NOW)  # and every time


def test_what_nobody_declared_is_its_owner_s():
    public = PublicPrefixes(renderer_of("chatml"), frozenset({SYSTEM}))

    assert public.count((says("system", SYSTEM + " "),), NOW) == 0
    assert public.count((says("system", SYSTEM), says("developer", "And briefly.")), NOW) == 0


def test_without_instructions_what_the_template_says_itself_is_public():
    renderer = renderer_of("chatml_named")  # it names a default system prompt
    public = PublicPrefixes(renderer, frozenset())

    num = public.count((says("user", "My secret is blue."),), None)

    text = renderer._template.decode(renderer.whole((says("user", "x"),))[:num])
    assert "helpful assistant" in text
