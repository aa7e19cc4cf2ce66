"""What a call may look like by its grammar, as llguidance reads it."""

import llguidance
import pytest

from model.grammar import Grammar, GrammarKind
from sessions.call_formats import HERMES
from sessions.errors import InvalidInputError
from sessions.tool_grammar import Words, call_grammar
from sessions.tools import Tool, ToolChoice, ToolMode, check_form

SCHEMA = '{"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"]}'
LOOK = Tool(name="look", parameters=SCHEMA, strict=True)
FORM = Grammar(kind=GrammarKind.JSON_SCHEMA, text=SCHEMA)
CALL = '<tool_call>\n{"name": "look", "arguments": %s}\n</tool_call>'


@pytest.fixture(scope="module")
def tokenizer():
    return llguidance.LLTokenizer("byte")


def num_taken(tokenizer, mode, text, form=FORM):
    """How much of a reply its form allows."""
    grammar = call_grammar([LOOK], ToolChoice(mode=mode), HERMES, Words({}), answer=form)
    matcher = llguidance.LLMatcher(tokenizer, grammar.text)
    assert not matcher.get_error()
    return matcher.try_consume_tokens(tokenizer.tokenize_str(text))


@pytest.mark.parametrize("mode", [ToolMode.REQUIRED, ToolMode.AUTO])
@pytest.mark.parametrize("blanks", ["", " ", "\n" + " " * 16])
def test_between_the_tokens_of_a_call_there_may_be_a_line_and_an_indentation(
    tokenizer, mode, blanks
):
    call = CALL % f'{{{blanks}"a": "x"{blanks}}}'

    assert num_taken(tokenizer, mode, call) == len(call)


@pytest.mark.parametrize("mode", [ToolMode.REQUIRED, ToolMode.AUTO])
@pytest.mark.parametrize("blanks", [" " * 17, "\n\n", "\r", "\t"])
def test_and_nothing_more_so_that_a_bounded_call_is_bounded(tokenizer, mode, blanks):
    call = CALL % f'{{{blanks}"a": "x"}}'

    assert num_taken(tokenizer, mode, call) < len(call)


@pytest.mark.parametrize(("blanks", "is_whole"), [(" ", True), (" " * 17, False)])
def test_the_same_goes_for_the_answer_that_may_come_instead(tokenizer, blanks, is_whole):
    answer = f'{{{blanks}"a": "x"}}'

    assert (num_taken(tokenizer, ToolMode.AUTO, answer) == len(answer)) is is_whole


@pytest.mark.parametrize(
    ("pattern", "answer"),
    [
        ("yes|no", "no"),
        ("a/b", "a/b"),
        (r"a\/b", "a/b"),
        (r"a\\/b", r"a\/b"),
        ("a\nb", "a\nb"),
        ("a\\\nb", "a\nb"),
        ('"[a-z]{2}"', '"ok"'),
    ],
)
def test_an_answer_or_calls_by_a_pattern(tokenizer, pattern, answer):
    form = Grammar(kind=GrammarKind.REGEX, text=pattern)
    call = CALL % '{"a": "x"}'

    assert num_taken(tokenizer, ToolMode.AUTO, answer, form) == len(answer)
    assert num_taken(tokenizer, ToolMode.AUTO, call, form) == len(call)
    assert num_taken(tokenizer, ToolMode.AUTO, "#", form) == 0


def test_a_form_in_lark_stands_alone():
    lark = Grammar(kind=GrammarKind.LARK, text='start: "x"', param="text.format")

    for mode in (ToolMode.REQUIRED, ToolMode.NONE):
        check_form([LOOK], ToolChoice(mode=mode), lark)
    check_form([], ToolChoice(), lark)
    check_form([LOOK], ToolChoice(), FORM)
    with pytest.raises(InvalidInputError, match="beside tools") as caught:
        check_form([LOOK], ToolChoice(), lark)
    assert caught.value.param == "text.format"
