"""Putting a core together: what is chosen, what is refused, and text in and out."""

import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from model import assembly
from model.assembly import (
    TextTokenizer,
    assemble,
    choose_backend,
    choose_copier,
    choose_device,
    choose_dtype,
    choose_kv_dtype,
    choose_num_blocks,
)
from model.config import AttentionName, Device, EngineConfig, Mode, SamplingParams
from model.detokenizer import ReplyText
from model.errors import ModelLoadError
from model.messages import GenerationFinished, GenerationRequest
from model.native.build import NativeBuildError
from model.native.copier import CompiledCopier
from model.tiers.copies import PlainCopier
from tests.support.text_tokenizers import SAMPLES, byte_level, metaspace, sentencepiece_like
from tests.support.tiny_folder import save_tiny_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("assembly") / "model")


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "model")


def config_for(folder, **fields) -> EngineConfig:
    return EngineConfig(
        model=str(folder),
        models_dir=folder.parent / "models",
        **{"device": Device.CPU, "mode": Mode.EXACT, "num_blocks": 20, **fields},
    )


def test_an_assembled_core_answers_and_is_described(folder):
    progress: list[str] = []

    core, info = assemble(config_for(folder), progress.append)

    core.submit(
        GenerationRequest(
            request_id="r",
            token_ids=(5, 6, 7),
            params=SamplingParams(temperature=0.0, max_output_tokens=4, ignore_eos=True),
        )
    )
    outputs = []
    while core.has_work:
        outputs += core.step()
    finished = outputs[-1].event
    assert isinstance(finished, GenerationFinished)
    assert len(finished.token_ids) == 4
    assert (info.device, info.dtype, info.mode, info.attention) == (
        "cpu",
        "float32",
        "exact",
        "reference",
    )
    assert (info.num_blocks, info.block_size) == (20, 16)
    assert info.block_bytes == 2 * 2 * 16 * 2 * 8 * 4
    assert info.cache_bytes == 20 * info.block_bytes
    assert info.weights_bytes > 0
    # One block is kept back: a prompt can be forked while its origin is parked.
    assert info.max_context_tokens == 19 * 16
    assert info.tokenizer_path == str(folder)
    assert info.eos_token_ids == (2,)
    assert any("loading" in text for text in progress)


@pytest.mark.parametrize(
    ("limit", "num_blocks", "expected"), [(None, 1000, 4096), (100, 1000, 100), (9999, 1000, 4096)]
)
def test_the_context_is_what_model_cache_and_operator_allow(folder, limit, num_blocks, expected):
    _, info = assemble(
        config_for(folder, max_context_tokens=limit, num_blocks=num_blocks), lambda text: None
    )

    assert info.max_context_tokens == expected


@pytest.mark.parametrize("missing", ["tokenizer.json", "model.safetensors", "config.json"])
def test_a_folder_that_lacks_a_part_is_refused_with_a_sentence(folder, missing):
    (folder / missing).unlink()
    if missing == "tokenizer.json":
        (folder / "tokenizer_config.json").unlink()

    with pytest.raises(ModelLoadError) as caught:
        assemble(config_for(folder), lambda text: None)

    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("name", ["tokenizer.json", "generation_config.json"])
def test_a_damaged_part_is_refused_with_a_sentence(folder, name):
    (folder / name).write_text("{")

    with pytest.raises(ModelLoadError) as caught:
        assemble(config_for(folder), lambda text: None)

    assert str(folder) in str(caught.value)


def test_a_cache_that_memory_can_not_hold_is_refused_with_a_sentence(folder):
    with pytest.raises(ModelLoadError, match="lower --cache-bytes"):
        assemble(config_for(folder, num_blocks=1 << 40), lambda text: None)


# Choices


def test_cuda_is_asked_for_by_name_or_taken_where_it_is(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device(Device.AUTO) == choose_device(Device.CPU) == CPU
    with pytest.raises(ModelLoadError, match="--device cpu"):
        choose_device(Device.CUDA)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert choose_device(Device.AUTO) == choose_device(Device.CUDA) == torch.device("cuda", 0)
    assert choose_device(Device.CPU) == CPU


@pytest.mark.parametrize(
    ("has_avx", "has_amx", "dtype"),
    [
        (False, False, torch.float32),
        (True, False, torch.bfloat16),
        (False, True, torch.bfloat16),
    ],
)
def test_a_cpu_computes_in_bfloat16_where_it_multiplies_in_it(monkeypatch, has_avx, has_amx, dtype):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_avx)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has_amx)

    assert choose_dtype(Mode.FAST, CPU) == dtype
    assert choose_dtype(Mode.EXACT, CPU) == torch.float32


@pytest.mark.parametrize(("has_bf16", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_an_old_card_computes_in_float16(monkeypatch, has_bf16, dtype):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: has_bf16)

    assert choose_dtype(Mode.FAST, torch.device("cuda")) == dtype
    assert choose_dtype(Mode.EXACT, torch.device("cuda")) == torch.float32


@pytest.mark.parametrize(
    ("mode", "attention", "dtype", "kept"),
    [
        (Mode.FAST, AttentionName.CPU, torch.float32, torch.bfloat16),
        (Mode.FAST, AttentionName.CPU, torch.bfloat16, torch.bfloat16),
        (Mode.FAST, AttentionName.BATCHED, torch.float32, torch.float32),
        (Mode.FAST, AttentionName.REFERENCE, torch.float32, torch.float32),
        (Mode.EXACT, AttentionName.REFERENCE, torch.float32, torch.float32),
        (Mode.EXACT, AttentionName.CPU, torch.float32, torch.float32),
    ],
)
def test_compiled_attention_keeps_16_bits_in_fast_mode_alone(mode, attention, dtype, kept):
    backend = choose_backend(EngineConfig(mode=mode, attention=attention), CPU)

    assert choose_kv_dtype(mode, dtype, backend) is kept


@pytest.mark.parametrize(
    ("mode", "attention", "name"),
    [
        (Mode.EXACT, AttentionName.AUTO, "reference"),
        (Mode.FAST, AttentionName.AUTO, "cpu"),
        (Mode.FAST, AttentionName.CPU, "cpu"),
        (Mode.FAST, AttentionName.BATCHED, "batched"),
        (Mode.EXACT, AttentionName.BATCHED, "batched"),
        (Mode.FAST, AttentionName.REFERENCE, "reference"),
    ],
)
def test_the_attention_is_the_one_named_or_the_mode_s_own(mode, attention, name):
    assert choose_backend(EngineConfig(mode=mode, attention=attention), CPU).name == name


def test_without_a_compiler_plain_torch_serves_and_the_log_says_why(monkeypatch, caplog, tmp_path):
    def refuse(folder, on_progress):
        raise NativeBuildError("no C++ compiler")

    monkeypatch.setattr(assembly, "load_ops", refuse)

    assert choose_backend(EngineConfig(), CPU).name == "batched"
    (record,) = caplog.records
    assert "slower: no C++ compiler" in record.getMessage()
    with pytest.raises(ModelLoadError, match=r"attention cpu can't be had: no C\+\+ compiler"):
        choose_backend(EngineConfig(attention=AttentionName.CPU), CPU)


def test_a_card_has_no_use_for_the_cpu_s_attention():
    config = EngineConfig(attention=AttentionName.CPU)

    with pytest.raises(ModelLoadError, match="runs on CUDA"):
        choose_backend(config, torch.device("cuda"))
    assert choose_backend(EngineConfig(), torch.device("cuda")).name == "batched"


def test_a_number_of_blocks_wins_over_bytes_and_bytes_over_free_memory(monkeypatch):
    monkeypatch.setattr(assembly, "spare_bytes", lambda device: 7000)

    def choose(**fields):
        return choose_num_blocks(EngineConfig(**fields), CPU, 1000)

    assert choose(num_blocks=5, cache_bytes=9999) == 5
    assert choose(cache_bytes=9999) == 9
    assert choose() == 7


@pytest.mark.parametrize("fields", [{"num_blocks": 1}, {"cache_bytes": 1999}, {"num_blocks": 0}])
def test_too_few_blocks_to_serve_are_refused(fields):
    with pytest.raises(ModelLoadError, match="at least 2 are needed"):
        choose_num_blocks(EngineConfig(**fields), CPU, 1000)


def test_the_cpu_cache_is_bounded_whatever_memory_there_is():
    assert 0 < assembly.spare_bytes(CPU) <= 2 << 30


# Text


def wrap(tokenizer) -> TextTokenizer:
    return TextTokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer))


TOKENIZERS = {f.__name__: wrap(f()) for f in (byte_level, sentencepiece_like, metaspace)}
pieces = st.sampled_from([*SAMPLES, *sorted(set("".join(SAMPLES))), " ", "\n"])


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@given(
    text=st.lists(pieces, min_size=1, max_size=8).map("".join),
    begin=st.integers(0, 1000),
    length=st.integers(1, 5),
)
@settings(max_examples=150, derandomize=True, deadline=None)
def test_the_rest_of_a_cut_token_is_encoded_as_going_on_with_the_text(
    tokenizer, text, begin, length
):
    token_ids = tokenizer._encode(text)
    text = tokenizer.decode(token_ids)
    stop = text[begin % max(1, len(text)) :][:length]
    reply = ReplyText(tokenizer.decode, [stop] if stop else [])
    for token_id in token_ids:
        _, is_stopped = reply.push(token_id)
        if is_stopped:
            break
    else:
        assert not stop
        return

    cut = reply.cut()

    kept = token_ids[: cut.num_tokens]
    tail = tokenizer.encode(cut.rest) if cut.rest else []
    assert tokenizer.decode([*kept, *tail]) == reply.text


def test_a_space_in_front_is_made_up_for_no_tokenizer():
    for tokenizer in TOKENIZERS.values():
        (word,) = tokenizer._encode("you")[:1]
        token_ids = [word, *tokenizer.encode("are")]
        assert tokenizer.decode(token_ids).endswith("are")
        assert not tokenizer.decode(token_ids).endswith(" are")


def test_memory_is_copied_by_the_kernels_or_where_there_are_none_by_python(monkeypatch):
    assert isinstance(choose_copier(EngineConfig()), CompiledCopier)

    def cannot(*_):
        raise NativeBuildError("no C++ compiler")

    monkeypatch.setattr(assembly, "load_ops", cannot)
    plain = choose_copier(EngineConfig())
    plain.close()

    assert isinstance(plain, PlainCopier)


def test_a_big_endian_machine_copies_by_python(monkeypatch):
    monkeypatch.setattr(assembly.sys, "byteorder", "big")
    plain = choose_copier(EngineConfig())
    plain.close()

    assert isinstance(plain, PlainCopier)
