"""The door to storage: named blobs in a store that a URL addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInfo:
    """What a listing tells about a blob."""

    key: str
    size_bytes: int
    etag: str | None = None


class BlobStore(Protocol):
    """A flat store of blobs. Keys are relative, with `/` between parts.

    Every method raises DataError when the store cannot be reached or refuses.
    """

    @property
    def url(self) -> str:
        """The address, without credentials."""
        ...

    def get(self, key: str) -> bytes:
        """Read a whole blob; DataError when it is absent."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read `length` bytes from `start`."""
        ...

    def put(self, key: str, content: bytes) -> None:
        """Write a blob in one step: readers see the old content or the new."""
        ...

    def exists(self, key: str) -> bool:
        """Tell whether a blob is there."""
        ...

    def list(self, prefix: str = "") -> list[BlobInfo]:
        """List blobs whose key starts with the prefix, sorted by key."""
        ...

    def delete(self, key: str) -> None:
        """Remove a blob; no error when it is absent."""
        ...
