"""Small tokenizers of the kinds that models come with, trained on text of many scripts."""

import json

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SPECIAL = "<|end|>"
# Emoji with joiners and skin tones, CJK, kana, combining marks, right-to-left, Indic, spaces.
SAMPLES = (
    "Hello, how are you today? I am fine, and you are fine too.",
    "naïve café, e\u0301te\u0301, Å\u030a, z\u0335a\u0336l\u0337g\u0338o",
    "👩‍👩‍👧‍👦 family 👋🏽 wave 🇩🇪 flag 😀😃😄 🎉🎉",
    "你好、世界。今天天气很好、我们去公园吧。中文字符很多",
    "こんにちは世界。カタカナとひらがな",
    "안녕하세요 세계",
    "שלום עולם, מה שלומך?",
    "مرحبا بالعالم، كيف حالك؟",
    "नमस्ते दुनिया",
    "  two  spaces\n\n\tand a tab\n",
    "\U0001d518\U0001d52b\U0001d526 \U00010348 \U0002070e",
)


def byte_level(vocab_size: int = 420) -> Tokenizer:
    """As GPT-2, Llama 3, Qwen and SmolLM have it: a token is any run of bytes."""
    tokenizer = Tokenizer(models.BPE())
    # No regular expression splits, so tokens often begin and end inside a character.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SAMPLES, trainer)
    return tokenizer


def sentencepiece_like(vocab_size: int = 120) -> Tokenizer:
    """As Llama 2 and Mistral have it: words carry their space, unknown characters are bytes, and a
    text's first space is made up when encoding and left out when decoding."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Split(Regex("▁"), "merged_with_next")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<unk>", SPECIAL], show_progress=False
    )
    trained.train_from_iterator([f"▁{text.replace(' ', '▁')}" for text in SAMPLES[:2]], trainer)
    model = json.loads(trained.to_str())["model"]
    vocab, merges = model["vocab"], [tuple(pair) for pair in model["merges"]]
    vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.add_special_tokens([SPECIAL])
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.pre_tokenizer = None
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def metaspace(vocab_size: int = 300) -> Tokenizer:
    """As T5 and older models have it, without bytes: what is unknown is lost when encoding."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<unk>", SPECIAL], show_progress=False
    )
    tokenizer.train_from_iterator(SAMPLES, trainer)
    return tokenizer
