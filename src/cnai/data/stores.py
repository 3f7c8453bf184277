"""The one way from a URL to a store of blobs."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cnai.core.blobs import BlobStore
from cnai.core.errors import DataError
from cnai.data.file_store import FileStore
from cnai.data.memory_store import MemoryStore
from cnai.data.s3_store import S3Address, S3BlobStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/*)(.*)", re.DOTALL)
_BOS_HOST = re.compile(r"(?:s3\.)?([a-z0-9-]+)\.bcebos\.com")
SCHEMES = ("file", "s3", "bos", "memory")


def open_store(url: str, *, endpoint: str | None = None) -> BlobStore:
    """Open a store; nothing is read, written or connected yet.

    Args:
        url: `file:///folder`, a bare path, `s3://bucket/prefix`, `bos://bucket/prefix` (the S3 API
            of Baidu BOS) or `memory://name`, which lives as long as the process.
        endpoint: Address of an S3 service, `http://` allowed; None = AWS_ENDPOINT_URL_S3,
            AWS_ENDPOINT_URL or Amazon's own.

    Raises:
        DataError: The URL or endpoint cannot be understood.
    """
    match = _SCHEME.fullmatch(url)
    if match is None:
        return FileStore(_folder(url, url))
    scheme, slashes, rest = match[1], match[2][:2], match[2][2:] + match[3]
    if scheme not in SCHEMES:
        raise _unknown_scheme(scheme)
    if len(slashes) < 2:
        raise DataError(
            f"`{scheme}:{slashes}` has too few slashes",
            where="data.store",
            hint=f"write `{scheme}://` in full",
        )
    if scheme == "file":
        return FileStore(_folder(unquote(rest), url))
    if scheme == "memory":
        return MemoryStore(rest.strip("/"))
    return S3BlobStore(_bucket(scheme, rest, endpoint))


def _folder(path: str, url: str) -> Path:
    if url.startswith("file:") and not path.startswith("/"):
        raise DataError(
            f"`{url}` names a host, not a folder",
            where="data.store",
            hint=f"write three slashes, `file:///{path}`, or the plain path `{path}`",
        )
    if not path.strip():
        raise DataError("the store has no name", where="data.store", hint="write a path or URL")
    return Path(path).expanduser()


def _unknown_scheme(scheme: str) -> DataError:
    near = difflib.get_close_matches(scheme.lower(), SCHEMES, n=1, cutoff=0.4)
    guess = f"did you mean `{near[0]}://`? " if near else ""
    return DataError(
        f"unknown kind of store `{scheme}://`",
        where="data.store",
        hint=f"{guess}known are {', '.join(f'{name}://' for name in SCHEMES)} and plain paths; "
        "other S3-compatible services are `s3://` with `data.endpoint`",
    )


def _bucket(scheme: str, rest: str, endpoint: str | None) -> S3Address:
    bucket, _, prefix = rest.partition("/")
    if "@" in bucket:
        raise DataError(
            "credentials do not belong in the URL of a store",
            where="data.store",
            hint="export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead",
        )
    if not bucket:
        raise DataError(
            f"`{scheme}://` names no bucket",
            where="data.store",
            hint=f"write `{scheme}://bucket/prefix`",
        )
    found = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if scheme == "bos" and not found:
        raise DataError(
            f"`bos://{bucket}` needs the address of the service",
            where="data.endpoint",
            hint="set it to the S3 address of the bucket's region, for instance "
            "`https://s3.bj.bcebos.com`",
        )
    host = _host(found) if found else ""
    return S3Address(
        scheme=scheme,
        bucket=bucket,
        prefix=prefix.strip("/"),
        region=_region(host),
        endpoint=found.rstrip("/") if found else None,
    )


def _host(endpoint: str) -> str:
    """Return the host of a sound endpoint."""
    parts = urlsplit(endpoint)
    if "@" in parts.netloc:
        raise DataError(
            "credentials do not belong in the endpoint",
            where="data.endpoint",
            hint="export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead",
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise DataError(
            f"`{endpoint}` is no address of a service",
            where="data.endpoint",
            hint="write it with its scheme, for instance `http://localhost:9000`",
        )
    return parts.hostname


def _region(host: str) -> str:
    """Return the region to sign for: the environment's, that of a BOS host, or the default."""
    set_by_user = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    match = _BOS_HOST.fullmatch(host)
    return set_by_user or (match[1] if match else "us-east-1")
