"""A GGUF file's own 4 and 8 bits, found for the layers that have them."""

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForCausalLM

from model.gguf import PACKED
from model.gguf_codes import pack_file
from model.packed_weights import bits_of, unpack
from model.provision import obtain
from model.weights import prepare
from tests.support.tiny_gguf import INTERMEDIATE, LAYERS, write_tiny_gguf

Kind = GGMLQuantizationType


def quiet(_message):
    """Nobody listens."""


def write_tensors(path, tensors):
    writer = GGUFWriter(path, "llama")
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def random_data(kind, num_outputs=24, num_inputs=512):
    """Python's gguf quantises to the older types; of the newer one any bytes are a tensor."""
    random = np.random.default_rng(5)
    if kind is not Kind.Q4_K:
        return quantize(random.standard_normal((num_outputs, num_inputs), np.float32), kind)
    blocks = random.integers(0, 256, (num_outputs, num_inputs // 256, 144), dtype=np.uint8)
    factors = random.uniform(1e-3, 1e-2, (num_outputs, num_inputs // 256, 2))
    blocks[..., :4] = factors.astype(np.float16).view(np.uint8)
    return blocks.reshape(num_outputs, -1)


def layer_with(numbers, dtype=torch.float32):
    layer = nn.Linear(numbers.shape[1], numbers.shape[0], bias=False, dtype=dtype)
    layer.requires_grad_(requires_grad=False)
    layer.weight.copy_(numbers)
    return layer


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q8_0, Kind.Q4_K], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_is_packed_stands_for_the_files_numbers(tmp_path, kind, dtype):
    data = random_data(kind)
    numbers = torch.from_numpy(dequantize(data, kind))
    write_tensors(tmp_path / "a.gguf", {"some.weight": (data, kind)})
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(layer_with(numbers, dtype), layer_with(numbers[order], dtype))

    packed = pack_file(tmp_path / "a.gguf", model)

    assert set(packed) == {"0", "1"}
    bits = 8 if kind is Kind.Q8_0 else 4
    for name, expected in (("0", numbers), ("1", numbers[order])):
        assert bits_of(packed[name]) == bits
        weights = unpack(packed[name], bits, len(numbers)).weights()
        if kind is Kind.Q4_K:  # whose scales and minima have more digits than float16
            assert (weights - expected).abs().max() < 2**-11 * expected.abs().max() * 2
        else:
            assert torch.equal(weights, expected)


def test_a_weight_that_the_file_does_not_have_so_is_left_out(tmp_path):
    data = random_data(Kind.Q4_1)
    numbers = torch.from_numpy(dequantize(data, Kind.Q4_1))
    write_tensors(tmp_path / "a.gguf", {"some.weight": (data, Kind.Q4_1)})
    changed = numbers.clone()
    changed[3, 7] += 1
    model = nn.Sequential(layer_with(changed), layer_with(numbers.t()), layer_with(numbers[1:]))

    assert pack_file(tmp_path / "a.gguf", model) == {}


def test_plain_numbers_are_nobodys_codes(tmp_path):
    numbers = np.random.default_rng(5).standard_normal((8, 32), np.float32)
    write_tensors(tmp_path / "a.gguf", {"some.weight": (numbers, Kind.F32)})

    assert pack_file(tmp_path / "a.gguf", nn.Sequential(layer_with(torch.tensor(numbers)))) == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_prepared_file_has_its_own_bits_beside_the_weights(tmp_path, dtype):
    write_tiny_gguf(tmp_path / "Tiny.gguf", is_quantized=True)
    source = obtain(str(tmp_path / "Tiny.gguf"), tmp_path / "models", quiet)

    folder = prepare(source, dtype, tmp_path / "models", quiet).folder

    packed = load_file(folder / PACKED)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    linear = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    # Rows of 48 have no whole groups of 32.
    assert linear.keys() - packed.keys() == {
        f"model.layers.{i}.mlp.down_proj" for i in range(LAYERS)
    }
    for name, weight in packed.items():
        codes = unpack(weight, 8 if name == "lm_head" else 4, linear[name].out_features)
        assert torch.equal(codes.weights().to(dtype), linear[name].weight)
    assert linear["model.layers.0.mlp.down_proj"].in_features == INTERMEDIATE


def test_a_file_of_plain_numbers_has_none_beside_them(tmp_path):
    write_tiny_gguf(tmp_path / "Tiny.gguf")
    source = obtain(str(tmp_path / "Tiny.gguf"), tmp_path / "models", quiet)

    folder = prepare(source, torch.float32, tmp_path / "models", quiet).folder

    assert not (folder / PACKED).exists()
