"""Chained hashes, and the blocks they name."""

import subprocess
import sys

import pytest

from model.prefix_index import BlockHash, BlockHasher, PrefixIndex


def hashes_of(token_ids, *, salt="", fingerprint="f", dtype="float32", block_size=4, num_public=0):
    hasher = BlockHasher(fingerprint, dtype, block_size)
    hashes: list[BlockHash] = []
    hasher.extend(hashes, token_ids, salt, num_public)
    return hashes


def test_only_full_blocks_have_a_hash():
    assert [len(hashes_of(range(n))) for n in (0, 3, 4, 7, 8, 9)] == [0, 0, 1, 1, 2, 2]


def test_a_hash_covers_every_token_before_its_block():
    one, other = hashes_of([1, 2, 3, 4, 5, 6, 7, 8]), hashes_of([1, 2, 3, 9, 5, 6, 7, 8])

    assert one[1] != other[1]
    assert one[0] == hashes_of([1, 2, 3, 4, 9])[0]


@pytest.mark.parametrize(
    "change",
    [{"salt": "ann"}, {"fingerprint": "g"}, {"dtype": "bfloat16"}, {"block_size": 2}],
    ids=str,
)
def test_a_hash_covers_everything_that_the_bytes_depend_on(change):
    assert not set(hashes_of(range(8))) & set(hashes_of(range(8), **change))


def test_extending_in_steps_gives_the_hashes_of_the_whole():
    hasher = BlockHasher("f", "float32", 4)
    hashes: list[BlockHash] = []
    for num_tokens in (2, 5, 5, 13, 16):
        hasher.extend(hashes, range(num_tokens), "ann")

    assert hashes == hashes_of(range(16), salt="ann")


def test_the_salt_enters_behind_the_public_prefix():
    anns = hashes_of(range(16), salt="ann", num_public=9)
    bobs = hashes_of(range(16), salt="bob", num_public=9)

    assert anns[:2] == bobs[:2]
    assert not set(anns[2:]) & set(bobs[2:])
    # Whoever declares less public shares no less private block.
    assert not set(hashes_of(range(16), salt="ann", num_public=4)[1:]) & set(anns)


def test_hashes_are_the_same_in_every_process():
    program = (
        "from model.prefix_index import BlockHasher\n"
        "hasher = BlockHasher('f', 'float32', 4)\n"
        "hashes = []\n"
        "hasher.extend(hashes, [1, 2, 3, 4], 'ann')\n"
        "print(hashes[0].hex())"
    )
    other = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert other.stdout.strip() == hashes_of([1, 2, 3, 4], salt="ann")[0].hex()


def test_the_longest_chain_ends_at_the_first_unknown_hash():
    index, hashes = PrefixIndex(), hashes_of(range(16))
    for i, block_id in ((0, 7), (1, 3), (3, 5)):
        index.register(hashes[i], block_id)

    assert index.longest_chain(hashes) == [7, 3]
    assert index.longest_chain(hashes[2:]) == []
    assert len(index) == 3


def test_a_second_block_with_the_same_contents_stays_unnamed():
    index, (block_hash,) = PrefixIndex(), hashes_of(range(4))
    index.register(block_hash, 1)
    index.register(block_hash, 2)

    assert index.longest_chain([block_hash]) == [1]
    assert index.hash_of(2) is None
    assert not index.forget(2)
    index.check()


def test_a_named_block_keeps_its_name():
    index, (first, second) = PrefixIndex(), hashes_of(range(8))
    index.register(first, 1)
    index.register(second, 1)

    assert index.hash_of(1) == first
    assert index.longest_chain([second]) == []
    index.check()


def test_a_forgotten_block_is_not_found_and_its_hash_can_be_given_again():
    index, (block_hash,) = PrefixIndex(), hashes_of(range(4))
    index.register(block_hash, 1)

    assert index.forget(1)
    assert index.longest_chain([block_hash]) == []
    index.register(block_hash, 2)
    assert index.longest_chain([block_hash]) == [2]


def test_the_check_finds_a_block_with_another_ones_name():
    index, (first, second) = PrefixIndex(), hashes_of(range(8))
    index.register(first, 1)
    index.register(second, 2)
    index._block_by_hash[first] = 2

    with pytest.raises(AssertionError, match="block 1 is misnamed"):
        index.check()
