"""What composing a turn's prompt came to, told with the turn's terms."""

from dataclasses import replace

from sessions.comparison import Change, Comparison
from sessions.prompt import PromptComposer
from sessions.prompt_value import Prompt
from sessions.terms import Terms
from sessions.token_log import TurnLog, common_prefix
from sessions.types import Turn, TurnRequest


async def settled(
    request: TurnRequest,
    prompt: Prompt,
    parent: Turn | None,
    composer: PromptComposer,
    fingerprint: str,
) -> Terms:
    """The request's terms, with what its prompt lost and how it compares: with the turn that the
    request names, or else, where something beside the input changed, with the one it follows.

    `fingerprint` is the model's that the prompt was made for.
    """
    terms = replace(request.terms, num_dropped_turns=prompt.num_dropped_turns)
    if terms.comparison is not None:
        other = request.compared
        if other is None or other.status.is_active:
            found = replace(terms.comparison, is_found=False)
        else:
            found = _compared(terms, prompt, other, await composer.log(other.id), fingerprint)
        return replace(terms, comparison=found)
    change = Change.INPUT if parent is None else _change(terms, parent.terms)
    if parent is None or change is Change.INPUT:
        return terms
    return replace(terms, comparison=Comparison(turn_id=parent.id, change=change))


def _compared(
    terms: Terms, prompt: Prompt, other: Turn, log: TurnLog, fingerprint: str
) -> Comparison:
    if log.span.fingerprint != fingerprint:
        return Comparison(turn_id=other.id, num_shared=0, change=Change.MODEL)
    num_shared = common_prefix(log.token_ids, prompt.token_ids)
    # The token that ends a reply may be another than the template's, and nobody misses it.
    most = min(len(prompt.token_ids), len(log.token_ids) - bool(log.span.reply_ids))
    is_behind = prompt.base_id == other.id and prompt.diverged_at is None
    change = None if is_behind or num_shared >= most else _change(terms, other.terms)
    return Comparison(turn_id=other.id, num_shared=num_shared, change=change)


def _change(terms: Terms, before: Terms) -> Change:
    """What makes a prompt of these terms leave what was made under those."""
    if terms.tools != before.tools:
        return Change.TOOLS
    if terms.summary is not None or terms.num_dropped_turns > before.num_dropped_turns:
        return Change.COMPACTED
    return Change.INPUT
