"""A GGUF file of a tiny random model, with a byte-level vocabulary split as SmolLM2's is."""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quantize
from transformers.convert_slow_tokenizer import bytes_to_unicode

HIDDEN, HEADS, LAYERS, INTERMEDIATE = 32, 4, 2, 48
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# "ĊĊ" and "ĠĠ" are the tokens that splitting digits apart makes reachable before a number.
MERGED = ("ĊĊ", "ĠĠ")
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


# As small files have them: the table that is the head too in 8 bits, most others in 4.
EIGHT_BITS = {"token_embd"}
OLD_FOUR_BITS = {"attn_k", "ffn_gate"}


def write_tiny_gguf(
    path: Path,
    context_length: int = 128,
    template: str = TEMPLATE,
    *,
    is_quantized: bool = False,
) -> None:
    alphabet = [bytes_to_unicode()[byte] for byte in range(256)]
    tokens = [*SPECIAL, *alphabet, *MERGED]
    writer = GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_context_length(context_length)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    kinds = [TokenType.CONTROL] * len(SPECIAL) + [TokenType.NORMAL] * (len(tokens) - len(SPECIAL))
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{merged[0]} {merged[1]}" for merged in MERGED])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)
    for seed, (name, shape) in enumerate(_shapes(len(tokens))):
        numbers = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
        kind = _kind(name, shape) if is_quantized else None
        if kind is None:
            writer.add_tensor(name, numbers)
        else:
            writer.add_tensor(name, quantize(numbers, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _kind(name: str, shape: tuple[int, ...]) -> GGMLQuantizationType | None:
    """None for what has one dimension or no whole groups of 32."""
    if len(shape) == 1 or shape[-1] % 32:
        return None
    stem = name.split(".")[-2]
    if stem in EIGHT_BITS:
        return GGMLQuantizationType.Q8_0
    return GGMLQuantizationType.Q4_0 if stem in OLD_FOUR_BITS else GGMLQuantizationType.Q4_1


def _shapes(vocab_size: int) -> list[tuple[str, tuple[int, ...]]]:
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("token_embd.weight", (vocab_size, HIDDEN)),
        ("output_norm.weight", (HIDDEN,)),
    ]
    for layer in range(LAYERS):
        shapes += [
            (f"blk.{layer}.{name}.weight", shape)
            for name, shape in {
                "attn_q": (HIDDEN, HIDDEN),
                "attn_k": (HIDDEN, HIDDEN),
                "attn_v": (HIDDEN, HIDDEN),
                "attn_output": (HIDDEN, HIDDEN),
                "ffn_gate": (INTERMEDIATE, HIDDEN),
                "ffn_up": (INTERMEDIATE, HIDDEN),
                "ffn_down": (HIDDEN, INTERMEDIATE),
                "attn_norm": (HIDDEN,),
                "ffn_norm": (HIDDEN,),
            }.items()
        ]
    return shapes
