"""Blobs in an object store that speaks the S3 API, through obstore.

obstore runs its requests on threads of its own, which a fork does not copy: in a child forked
after the parent's first request every call would wait for ever, whatever store object it uses. So
the client is made late, once a process, and a child that cannot work says so at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from cnai.core.blobs import BlobInfo
from cnai.core.errors import DataError
from cnai.data.file_store import absent_error, range_error

_USED_BY: set[int] = set()
_REFUSALS = frozenset({"ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "AccessDenied"})
_SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_OTHER_CREDENTIALS = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_METADATA_ENDPOINT",
    "AWS_SKIP_SIGNATURE",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Address:
    """Where a bucket lies.

    Attributes:
        scheme: What the user wrote, `s3` or `bos`.
        endpoint: Address of the service; None = Amazon's own.
    """

    scheme: str
    bucket: str
    prefix: str
    region: str
    endpoint: str | None = None

    @property
    def url(self) -> str:
        """The address without endpoint."""
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a failing service is tried, with exponential backoff and jitter.

    Attributes:
        retry_seconds: No new try begins after this.
        request_seconds: Longest single request.
    """

    retries: int = 8
    retry_seconds: float = 30.0
    request_seconds: float = 30.0
    connect_seconds: float = 5.0


class S3BlobStore:
    """A BlobStore in a bucket. Takes credentials from the usual AWS environment variables.

    Raises:
        DataError: From the first call on: no credentials are set, or the service does not answer
            or refuses.
    """

    def __init__(self, address: S3Address, patience: Patience | None = None) -> None:
        self._address = address
        self._patience = patience or Patience()
        self._client: S3Store | None = None

    @property
    def url(self) -> str:
        """The address, without credentials."""
        return self._address.url

    def get(self, key: str) -> bytes:
        """Read a whole blob."""
        with self._speaking(key) as client:
            return client.get(key).bytes().to_bytes()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read `length` bytes from `start`; DataError when the blob ends before."""
        with self._speaking(key) as client:
            content = client.get_range(key, start=start, length=length).to_bytes()
        if len(content) < length:
            raise range_error(key, start, length, where=self.url)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Write a blob in one request."""
        with self._speaking(key) as client:
            client.put(key, content, use_multipart=False)

    def exists(self, key: str) -> bool:
        """Tell whether a blob is there."""
        with self._speaking(key) as client:
            try:
                client.head(key)
            except FileNotFoundError:
                return False
            return True

    def list(self, prefix: str = "") -> list[BlobInfo]:
        """List blobs whose key starts with the prefix."""
        folder = prefix.rpartition("/")[0]
        with self._speaking(prefix) as client:
            found = [
                BlobInfo(key=meta["path"], size_bytes=meta["size"], etag=meta["e_tag"])
                for page in client.list(folder or None, chunk_size=1000)
                for meta in page
                if meta["path"].startswith(prefix)
            ]
        return sorted(found, key=lambda blob: blob.key)

    def delete(self, key: str) -> None:
        """Remove a blob; no error when it is absent."""
        with self._speaking(key) as client:
            client.delete(key)

    @contextmanager
    def _speaking(self, key: str) -> Iterator[S3Store]:
        client = self._connected()
        try:
            yield client
        except (BaseError, FileNotFoundError) as error:
            # `from None`: the cause holds the service's answer, which may name the access key.
            raise explain(error, key, self._address) from None

    def _connected(self) -> S3Store:
        if _USED_BY and os.getpid() not in _USED_BY:
            raise DataError(
                "the object store cannot be used in a process forked after its parent used it",
                where=self.url,
                hint="start the process by `spawn` or `forkserver`, or let only the children open "
                "the store",
            )
        if self._client is None:
            check_credentials(os.environ, self.url)
            self._client = self._new_client()
        _USED_BY.add(os.getpid())
        return self._client

    def _new_client(self) -> S3Store:
        patience = self._patience
        return S3Store(
            self._address.bucket,
            prefix=self._address.prefix or None,
            endpoint=self._address.endpoint,
            region=self._address.region,
            virtual_hosted_style_request=False,
            client_options={
                "allow_http": True,
                "timeout": timedelta(seconds=patience.request_seconds),
                "connect_timeout": timedelta(seconds=patience.connect_seconds),
            },
            retry_config={
                "max_retries": patience.retries,
                "retry_timeout": timedelta(seconds=patience.retry_seconds),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=100),
                    "max_backoff": timedelta(seconds=5),
                    "base": 2,
                },
            },
        )


def check_credentials(environment: Mapping[str, str], url: str) -> None:
    """Refuse at once what would otherwise wait for a metadata service that is not there.

    Raises:
        DataError: No source of credentials is named in the environment.
    """
    pair = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    missing = [name for name in pair if not environment.get(name)]
    if not missing or any(environment.get(name) for name in _OTHER_CREDENTIALS):
        return
    raise DataError(
        f"no credentials: {' and '.join(missing)} not set",
        where=url,
        hint="export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (for Baidu BOS its AK and SK), "
        "or AWS_SKIP_SIGNATURE=true for a public bucket",
    )


def explain(error: Exception, key: str, address: S3Address) -> DataError:
    """Turn an answer of the service into an error with a repair, without any credential in it."""
    text = str(error)
    match = re.search(r"<Code>(\w+)</Code>", text)
    code = match[1] if match else ""
    service = address.endpoint or f"Amazon S3 in {address.region}"
    if code in {"NoSuchBucket", "InvalidBucketName"}:
        return DataError(
            f"no bucket `{address.bucket}` at {service} ({code})",
            where=address.url,
            hint="create the bucket, or correct `data.store` and `data.endpoint`",
        )
    if code in {"PermanentRedirect", "AuthorizationHeaderMalformed"}:
        return DataError(
            f"bucket `{address.bucket}` is not in region `{address.region}`",
            where=address.url,
            hint="export AWS_REGION with the bucket's region",
        )
    if code in _REFUSALS or isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return DataError(
            f"{service} refused the credentials ({code or 'access denied'})",
            where=f"{address.url} blob `{key}`",
            hint="check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, which "
            "expires), and that they may read and write this bucket",
        )
    if code == "InvalidRange":
        return DataError(
            f"blob `{key}` ends before the bytes that were asked for",
            where=address.url,
            hint="the blob was cut or replaced; prepare the data again",
        )
    if isinstance(error, FileNotFoundError):
        return absent_error(key, where=address.url)
    return _failure(text, code, f"{address.url} blob `{key}`", service)


def _failure(text: str, code: str, where: str, service: str) -> DataError:
    """Tell a service that is not there from one that answers strangely."""
    if "kind: Connect" in text or "kind: Timeout" in text:
        reason = "did not answer in time" if "kind: Timeout" in text else "cannot be reached"
        refused = " (connection refused)" if "ConnectionRefused" in text else ""
        return DataError(
            f"the object store at {service} {reason}{refused}",
            where=where,
            hint="check that the service runs and that `data.endpoint` is right, then run the "
            "same command again",
        )
    answer = code or _without_secrets(text.partition("\n")[0], os.environ)[:300]
    return DataError(
        f"the object store at {service} failed: {answer}",
        where=where,
        hint="look at the service's own log, then run the same command again",
    )


def _without_secrets(text: str, environment: Mapping[str, str]) -> str:
    for name in _SECRETS:
        if value := environment.get(name):
            text = text.replace(value, "***")
    return text
