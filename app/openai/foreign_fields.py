"""Fields of other servers' chat addresses, and which of their values would change the answer.

Unknown fields are ignored, but whoever sends one of these counts on what it does: silence would
lie. A value that asks for nothing (null, "off", what holds here anyway) is taken.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from app.openai.foreign_forms import refuse_foreign_form
from sessions.errors import UnsupportedInputError

Matters = Callable[[object], bool]


def is_other_than(*harmless: object) -> Matters:
    """Tell whether a value is neither null nor one of these."""
    return lambda value: value is not None and value not in harmless


_OF_DRAWING: Final[Mapping[str, Matters]] = {
    "allowed_token_ids": bool,
    "bad_words": bool,
    "custom_logit_processor": bool,
    "dry_multiplier": is_other_than(0),
    "dynatemp_range": is_other_than(0),
    "include_stop_str_in_output": bool,
    "length_penalty": is_other_than(1),
    "logits_processors": bool,
    "lora_path": bool,
    "min_tokens": is_other_than(0),
    "mirostat": is_other_than(0),
    "no_stop_trim": bool,
    "options": bool,
    # 0 asks for those of the prompt's own tokens.
    "prompt_logprobs": lambda value: value is not None and value is not False,
    "return_token_ids": bool,
    "skip_special_tokens": is_other_than(True),
    "stop_regex": bool,
    "top_a": is_other_than(0),
    "top_n_sigma": is_other_than(0, -1),
    "truncate_prompt_tokens": is_other_than(),
    "typical_p": is_other_than(1),
    "use_beam_search": bool,
    "xtc_probability": is_other_than(0),
}
_OF_TEMPLATES: Final[Mapping[str, Matters]] = {
    "add_generation_prompt": is_other_than(True),
    "chat_template": bool,
    "chat_template_kwargs": bool,
    "continue_final_message": bool,
    "documents": bool,
    "echo": bool,
}
_LENGTHS: Final = ("n_predict", "num_predict", "max_new_tokens")
_PENALTY: Final = "repetition_penalty"


def refuse_foreign_fields(body: Mapping[str, Any], *, form: str | None, length: str) -> None:
    """Raise UnsupportedInputError for a field that isn't read here and would change the answer.

    `form` is where this surface has an answer's form; None where there are no forms and no
    template. `length` is what it calls the limit of a reply.
    """
    refuse_foreign_form(body, form=form)
    refuse_fields(body, _OF_DRAWING if form is None else {**_OF_DRAWING, **_OF_TEMPLATES})
    renamed = [*((name, -1, length) for name in _LENGTHS), ("repeat_penalty", 1, _PENALTY)]
    for name, off, own in renamed:
        if is_other_than(off)(body.get(name)):
            raise UnsupportedInputError(f"{name} is not supported: here it is {own}", param=name)


def refuse_fields(body: Mapping[str, Any], fields: Mapping[str, Matters]) -> None:
    """Raise UnsupportedInputError for the first of the fields whose value matters."""
    for name, matters in fields.items():
        if matters(body.get(name)):
            raise UnsupportedInputError(f"{name} is not supported", param=name)
