"""The checksum of TensorFlow's files: CRC-32C (Castagnoli), on numpy to be quick.

The bytes are laid out as rows that are walked side by side, one table look-up for all rows at once;
the rows' checksums are then joined by pairs. Source: Mark Adler's crc32_combine in zlib, which
appends zeros to a checksum by squaring a matrix over GF(2); masking: leveldb's util/crc32c.h.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_ROWS = 1 << 14
_MASK_DELTA = 0xA282EAD8
_ALL = 0xFFFFFFFF


def _table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


_TABLE = _table()


def _wide_table() -> NDArray[np.uint32]:
    """Return the table for two bytes at once."""
    words = np.arange(1 << 16, dtype=np.uint32)
    state: NDArray[np.uint32] = (words >> np.uint32(8)) ^ _TABLE[words & np.uint32(0xFF)]
    wide: NDArray[np.uint32] = (state >> np.uint32(8)) ^ _TABLE[state & np.uint32(0xFF)]
    return wide


_WIDE = _wide_table()


def crc32c(content: bytes | memoryview | NDArray[np.uint8]) -> int:
    """Return the CRC-32C of some bytes."""
    flat = np.frombuffer(content, np.uint8)
    length = len(flat) // _ROWS // 2 * 2
    state = np.uint32(_ALL)
    if length >= 64:
        rows = flat[: length * _ROWS].reshape(_ROWS, length)
        state = np.uint32(_joined(_walked(rows), length) ^ int(_zeros(length * _ROWS, _ALL)))
        flat = flat[length * _ROWS :]
    value = int(state)
    for byte in flat.tolist():
        value = (value >> 8) ^ int(_TABLE[(value ^ byte) & 0xFF])
    return value ^ _ALL


def masked(checksum: int) -> int:
    """Return a checksum as TensorFlow stores it beside the bytes that it is of."""
    return (((checksum >> 15) | (checksum << 17)) + _MASK_DELTA) & _ALL


def _walked(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the state of each row, begun at zero."""
    state = np.zeros(len(rows), np.uint32)
    for column in np.ascontiguousarray(rows.view("<u2").T):
        state = (state >> np.uint32(16)) ^ _WIDE[(state ^ column) & np.uint32(0xFFFF)]
    return state


def _joined(states: NDArray[np.uint32], length: int) -> int:
    """Join the states of rows of one length, two neighbours at a time."""
    while len(states) > 1:
        states = _times(_zero_matrix(length), states[0::2]) ^ states[1::2]
        length *= 2
    return int(states[0])


def _zeros(length: int, state: int) -> int:
    """Return a state after so many zero bytes."""
    return int(_times(_zero_matrix(length), np.array([state], np.uint32))[0])


def _zero_matrix(length: int) -> NDArray[np.uint32]:
    """Return the matrix that appends `length` zero bytes: 32 columns of 32 bits."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    power = (bits >> np.uint32(8)) ^ _TABLE[bits & np.uint32(0xFF)]
    matrix = bits
    while length:
        if length & 1:
            matrix = _times(power, matrix)
        power = _times(power, power)
        length >>= 1
    return matrix


def _times(matrix: NDArray[np.uint32], vectors: NDArray[np.uint32]) -> NDArray[np.uint32]:
    result = np.zeros_like(vectors)
    for bit in range(32):
        chosen = (vectors >> np.uint32(bit)) & np.uint32(1)
        result ^= np.where(chosen, matrix[bit], np.uint32(0))
    return result
