"""What the S3 store says when things go wrong, against sockets that misbehave."""

import os
import socket
import threading
import time
from contextlib import contextmanager

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from cnai.core.errors import DataError
from cnai.data.s3_store import Patience, S3Address, S3BlobStore, check_credentials, explain

ADDRESS = S3Address(
    scheme="s3", bucket="corpus", prefix="p", region="us-east-1", endpoint="http://host:9"
)
SHORT = Patience(retries=1, retry_seconds=2, request_seconds=0.5, connect_seconds=0.5)


def store_at(port):
    endpoint = f"http://127.0.0.1:{port}"
    address = S3Address(
        scheme="s3", bucket="corpus", prefix="", region="us-east-1", endpoint=endpoint
    )
    return S3BlobStore(address, SHORT)


@contextmanager
def server_that(answer):
    """Serve on a free port; `answer` gets each connection after its request was read."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        over = threading.Event()

        def serve():
            while not over.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.recv(65536)
                    answer(connection, over)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            thread.join()


def test_a_refused_connection_is_named_and_does_not_take_long(credentials):
    start = time.monotonic()
    with pytest.raises(DataError, match=r"127\.0\.0\.1:1 cannot be reached \(connection refused\)"):
        store_at(1).get("a")
    assert time.monotonic() - start < 10


def test_a_silent_server_is_given_up(credentials):
    with server_that(lambda connection, over: over.wait(20)) as port:
        start = time.monotonic()
        with pytest.raises(DataError, match="did not answer in time"):
            store_at(port).get("a")
        assert time.monotonic() - start < 10


def test_a_busy_server_is_tried_again(credentials):
    head = b'ETag: "x"\r\nLast-Modified: Mon, 30 Nov 2026 10:00:00 GMT\r\nConnection: close\r\n'
    answers = [
        b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n" + head + b"\r\nbody",
    ]
    with server_that(lambda connection, over: connection.sendall(answers.pop(0))) as port:
        assert store_at(port).get("a") == b"body"
    assert answers == []


def test_a_body_that_breaks_off_is_no_short_blob(credentials):
    head = b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nETag: "x"\r\n'
    head += b"Last-Modified: Mon, 30 Nov 2026 10:00:00 GMT\r\n\r\n"
    with (
        server_that(lambda connection, over: connection.sendall(head + b"short")) as port,
        pytest.raises(DataError),
    ):
        store_at(port).get("a")


def test_a_server_that_is_no_object_store_is_refused(credentials):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    with (
        server_that(lambda connection, over: connection.sendall(answer)) as port,
        pytest.raises(DataError, match="failed"),
    ):
        store_at(port).list()


def test_missing_credentials_are_named_before_any_request(monkeypatch):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    with pytest.raises(DataError, match="AWS_SECRET_ACCESS_KEY not set") as caught:
        store_at(1).get("a")
    assert "export AWS_ACCESS_KEY_ID" in caught.value.hint


@pytest.mark.parametrize(
    "name", ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"]
)
def test_other_sources_of_credentials_are_accepted(name):
    check_credentials({name: "somewhere"}, "s3://b")


def test_a_public_bucket_needs_no_credentials():
    check_credentials({"AWS_SKIP_SIGNATURE": "true"}, "s3://b")


def test_wrong_credentials_are_told_by_the_service_code():
    answer = PermissionDeniedError("403 <Code>SignatureDoesNotMatch</Code>")
    assert "SignatureDoesNotMatch" in explain(answer, "k", ADDRESS).message


def test_an_expired_token_is_a_matter_of_credentials():
    answer = GenericError("400 <Code>ExpiredToken</Code>")
    assert "AWS_SESSION_TOKEN" in explain(answer, "k", ADDRESS).hint


def test_another_code_of_the_service_is_shown():
    answer = GenericError("400 Bad Request\n<Error><Code>EntityTooLarge</Code></Error>")
    assert explain(answer, "k", ADDRESS).message.endswith("failed: EntityTooLarge")


def test_a_host_without_address_cannot_be_reached(credentials):
    address = S3Address(
        scheme="s3", bucket="b", prefix="", region="us-east-1", endpoint="http://nowhere.invalid"
    )
    with pytest.raises(DataError, match=r"nowhere\.invalid cannot be reached"):
        S3BlobStore(address, SHORT).get("a")


def test_a_bucket_in_another_region_points_to_the_region():
    answer = GenericError("301 <Code>PermanentRedirect</Code>")
    assert "AWS_REGION" in explain(answer, "k", ADDRESS).hint


def test_an_unknown_failure_shows_no_credential(credentials):
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    error = explain(GenericError(f"odd {secret} answer\nmore"), "k", ADDRESS)
    assert secret not in str(error.to_dict())
    assert "odd *** answer" in error.message


def test_the_repr_of_a_store_shows_no_credential(credentials):
    store = store_at(1)
    store._connected()
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in f"{store!r}{store._client!r}{store.url}"


def test_an_error_carries_no_cause_that_could_name_the_access_key(credentials):
    with pytest.raises(DataError) as caught:
        store_at(1).get("a")
    assert caught.value.__suppress_context__
