import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.data.memory_store import MemoryStore
from cnai.data.pack import Packer, PackShape, checksum, token_dtype, unpack


def packed(pieces, *, sequence, block_rows, dtype="uint16", name="pack"):
    store = MemoryStore(name)
    shape = PackShape(sequence=sequence, block_rows=block_rows, dtype=dtype)
    packer = Packer(store, "d/train", shape)
    for piece in pieces:
        packer.add(np.array(piece, dtype=np.int64))
    blocks = packer.finish().blocks
    return store, blocks


def rows_of(store, blocks, sequence, dtype="uint16"):
    return [
        row
        for block in blocks
        for row in unpack(store.get(block.key), sequence=sequence, dtype=dtype).tolist()
    ]


@given(
    pieces=st.lists(st.lists(st.integers(0, 60000), max_size=30), max_size=12),
    sequence=st.integers(1, 7),
    block_rows=st.integers(1, 5),
)
def test_rows_are_the_stream_cut_with_one_token_shared(pieces, sequence, block_rows):
    store, blocks = packed(pieces, sequence=sequence, block_rows=block_rows)
    stream = [token for piece in pieces for token in piece]
    count = max(0, (len(stream) - 1) // sequence)
    expected = [stream[n * sequence : (n + 1) * sequence + 1] for n in range(count)]
    assert rows_of(store, blocks, sequence) == expected
    assert all(block.rows == block_rows for block in blocks[:-1])


def test_a_block_tells_its_rows_size_and_checksum():
    store, (block,) = packed([range(9)], sequence=4, block_rows=2)
    content = store.get(block.key)
    assert (block.key, block.rows, block.size_bytes) == ("d/train/000000.bin", 2, 20)
    assert block.checksum == checksum(content)


def test_tokens_are_stored_little_endian():
    store, (block,) = packed([[1, 2, 3]], sequence=2, block_rows=1)
    assert store.get(block.key) == b"\1\0\2\0\3\0"


def test_full_blocks_are_stored_before_the_end():
    store = MemoryStore("early")
    packer = Packer(store, "d", PackShape(sequence=2, block_rows=1, dtype="uint16"))
    packer.add(np.arange(8))
    assert len(store.list()) == 3


def test_less_than_a_row_gives_no_block():
    assert packed([[1, 2, 3]], sequence=3, block_rows=1)[1] == ()


@pytest.mark.parametrize(("vocab", "dtype"), [(2**16, "uint16"), (2**16 + 1, "uint32")])
def test_large_vocabularies_get_wider_tokens(vocab, dtype):
    assert token_dtype(vocab) == dtype


def test_wide_tokens_survive():
    store, blocks = packed([[70000, 3, 70001]], sequence=2, block_rows=1, dtype="uint32")
    assert rows_of(store, blocks, 2, "uint32") == [[70000, 3, 70001]]
