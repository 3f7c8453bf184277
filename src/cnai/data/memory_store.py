"""Blobs in the memory of one process, for tests and dry runs."""

from __future__ import annotations

from cnai.core.blobs import BlobInfo
from cnai.data.file_store import absent_error, range_error

_NAMED: dict[str, dict[str, bytes]] = {}


class MemoryStore:
    """A BlobStore that lasts as long as the process; equal names share their blobs.

    A forked child sees what was there at the fork, and its own writes.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._blobs = _NAMED.setdefault(name, {})

    @property
    def url(self) -> str:
        """The name as a `memory://` URL."""
        return f"memory://{self._name}"

    def get(self, key: str) -> bytes:
        """Read a whole blob."""
        if key not in self._blobs:
            raise absent_error(key, where=self.url)
        return self._blobs[key]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read `length` bytes from `start`; DataError when the blob ends before."""
        content = self.get(key)[start : start + length]
        if len(content) < length:
            raise range_error(key, start, length, where=self.url)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Write a blob."""
        self._blobs[key] = bytes(content)

    def exists(self, key: str) -> bool:
        """Tell whether a blob is there."""
        return key in self._blobs

    def list(self, prefix: str = "") -> list[BlobInfo]:
        """List blobs whose key starts with the prefix."""
        return [
            BlobInfo(key=key, size_bytes=len(content))
            for key, content in sorted(self._blobs.copy().items())
            if key.startswith(prefix)
        ]

    def delete(self, key: str) -> None:
        """Remove a blob; no error when it is absent."""
        self._blobs.pop(key, None)
