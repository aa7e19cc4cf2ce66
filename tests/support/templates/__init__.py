"""Chat templates of the kinds there are, each with a small tokenizer that has its control tokens.

The templates are ours, written after the habits of the families that they are named for.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from transformers import AddedToken, PreTrainedTokenizerFast

from sessions.chat_template import ChatTemplate
from sessions.rendering import Renderer
from tests.support import tiny_tokenizer as tiny

_FOLDER = Path(__file__).parent
_SPECIAL = (
    *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("[INST]", "[/INST]", "<bos>", "<start_of_turn>", "<end_of_turn>"),
    *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
)
# Tokens of their own, but not special: a decoder shows them.
_VISIBLE = ("<think>", "</think>", "<tool_call>", "</tool_call>")


@dataclass(frozen=True)
class Family:
    """One template. `bos` and `eos` are what its model begins and ends with."""

    name: str
    eos: str = "<|im_end|>"
    bos: str = "<s>"

    @property
    def template(self) -> str:
        return (_FOLDER / f"{self.name}.jinja").read_text(encoding="utf-8").rstrip("\n")


FAMILIES = {
    family.name: family
    for family in (
        Family("chatml"),
        Family("chatml_named"),
        Family("llama3", eos="<|eot_id|>", bos="<|begin_of_text|>"),
        Family("mistral", eos="</s>"),
        Family("gemma", eos="<end_of_turn>", bos="<bos>"),
        Family("qwen3"),
        Family("qwen3_thinking"),
        Family("dated"),
        Family("numbered"),
        Family("tools"),
        Family("qwen_tools"),
        Family("llama_tools", eos="<|eot_id|>", bos="<|begin_of_text|>"),
        Family("mistral_tools", eos="</s>"),
    )
}


@cache
def tokenizer_of(name: str) -> PreTrainedTokenizerFast:
    family = FAMILIES[name]
    tokenizer = tiny.make_tokenizer(family.template)
    tokenizer.add_special_tokens({"additional_special_tokens": list(_SPECIAL)})
    tokenizer.add_tokens([AddedToken(word, special=False, normalized=False) for word in _VISIBLE])
    tokenizer.bos_token, tokenizer.eos_token = family.bos, family.eos
    return tokenizer


@cache
def renderer_of(name: str) -> Renderer:
    return Renderer(ChatTemplate(tokenizer_of(name)))
