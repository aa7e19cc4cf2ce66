"""A tiny random model in a folder, as save_pretrained leaves one, with its tokenizer."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from tests.support.tiny_tokenizer import make_tokenizer


def save_tiny_model(folder: Path, *, max_positions: int = 4096) -> Path:
    tokenizer = make_tokenizer(None)
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_positions,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,
    )
    torch.manual_seed(3)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder
