"""Keys and values of blocks: where they are written, read and copied."""

import pytest
import torch

from model.block_supply import BlockEdit
from model.kv_cache import KVCache, KVShape

CPU = torch.device("cpu")


def make_cache(num_blocks=6, dtype=torch.float32) -> KVCache:
    shape = KVShape(num_layers=3, block_size=4, num_kv_heads=2, head_size=5, dtype=dtype)
    return KVCache(shape, num_blocks, CPU)


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_a_block_s_bytes_are_those_it_takes_up(dtype, size):
    cache = make_cache(dtype=dtype)

    assert cache.shape.block_bytes == 3 * 2 * 4 * 2 * 5 * size
    assert cache._blocks[0].numel() * cache._blocks.element_size() == cache.shape.block_bytes


def test_a_block_s_bytes_lie_together_for_all_layers():
    cache = make_cache()

    assert cache._blocks[3].is_contiguous()
    assert cache.layer(1).shape == (6, 2, 4, 2, 5)
    assert cache.layer(1).data_ptr() == cache._blocks[0, 1].data_ptr()


def test_tokens_are_written_at_their_places_and_nowhere_else():
    cache = make_cache()
    cache._blocks.fill_(-1)
    places = torch.tensor([4, 0, 4]), torch.tensor([2, 3, 0])
    key, value = torch.randn(3, 2, 5), torch.randn(3, 2, 5)

    cache.write(1, places, key, value)

    layer = cache.layer(1)
    for i, (block, offset) in enumerate([(4, 2), (0, 3), (4, 0)]):
        assert torch.equal(layer[block, 0, offset], key[i])
        assert torch.equal(layer[block, 1, offset], value[i])
    assert (cache._blocks != -1).sum() == 2 * 3 * 2 * 5
    assert (cache.layer(0) == -1).all()
    assert (cache.layer(2) == -1).all()


def test_what_is_written_is_rounded_to_what_the_cache_keeps():
    cache = make_cache(dtype=torch.bfloat16)
    key, value = torch.randn(1, 2, 5), torch.randn(1, 2, 5)

    cache.write(2, (torch.tensor([1]), torch.tensor([3])), key, value)

    assert torch.equal(cache.layer(2)[1, :, 3], torch.cat([key, value]).bfloat16())


def test_copies_are_carried_out_one_after_the_other():
    cache = make_cache()
    for block in range(6):
        cache._blocks[block] = block

    cache.edit([BlockEdit(1, 2), BlockEdit(2, 3), BlockEdit(5, 1)])

    assert [int(cache._blocks[b].unique()) for b in range(6)] == [0, 5, 1, 1, 4, 5]


def test_a_partial_block_is_stored_without_what_lies_behind_its_tokens():
    cache = make_cache()
    cache._blocks.fill_(7)

    (view,) = cache.carrier().fetch([(2, 3)])
    stored = torch.frombuffer(bytearray(view), dtype=torch.float32).view(3, 2, 4, 2, 5)

    assert (stored[:, :, :3] == 7).all()
    assert (stored[:, :, 3:] == 0).all()
    assert (cache._blocks == 7).all()
