"""S3, as a server that the user runs: buckets are created and removed here, and the engine does the rest.

Requests are HTTP/1.1 with path-style addresses and signature version 4, so that no further package is needed. A bucket
that iosonde created has an object that shows it (`crates/objects/src/s3`): no other bucket is changed.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
import os
import re
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from iosonde.errors import ServerError
from iosonde.study.servers.server import Address

OWNER = "created-by-iosonde"
"""The object that shows who created a bucket."""

OBJECTS = "iosonde-"
"""Start of the names of the engine's objects."""

ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
"""Environment variables with the credentials, which no record contains; the engine reads them too."""

DEFAULT_REGION = "us-east-1"
ANSWER_S = 30.0
LONGEST_ANSWER = 16 << 20

DROP_S = 60.0
"""Timeout of removing a bucket that a client still writes to."""

POLL_S = 0.1
_PAYLOAD = "UNSIGNED-PAYLOAD"


class S3:
    """A client for administration."""

    def __init__(self, *, region: str = DEFAULT_REGION) -> None:
        self._region = region

    def connect(self, address: Address) -> Bucketeer:
        """Check that the server answers and accepts the credentials."""
        missing = [name for name in (ACCESS_KEY, SECRET_KEY) if not os.environ.get(name)]
        if missing:
            raise ServerError(
                f"the environment variable `{missing[0]}` is not set",
                where=f"for the S3 server at `{address.host}:{address.port}`",
                hint=f"set `{ACCESS_KEY}` and `{SECRET_KEY}` to its credentials",
                code="authentication",
            )
        return Bucketeer(address, self._region)

    def create_database(self, connection: Bucketeer, name: str) -> None:
        """A bucket with the object that shows who created it; `ServerError` (`foreign_data`) if it exists."""
        if connection.status("GET", f"/{name}", query={"list-type": "2", "max-keys": "1"}) != 404:
            raise ServerError(
                f"the bucket `{name}` already exists and was not created by iosonde",
                hint="it was not changed; remove it, or name another server",
                code="foreign_data",
            )
        self._create_bucket(connection, name)
        connection.require("PUT", f"/{name}/{OWNER}", body=b"created by iosonde", allowed=(200,))

    def _create_bucket(self, connection: Bucketeer, name: str) -> None:
        """Name the region only where the server requires it: Ceph's gateway accepts only names of its zone groups."""
        if self._region == DEFAULT_REGION:
            connection.require("PUT", f"/{name}", allowed=(200,))
        elif connection.status("PUT", f"/{name}") != 200:
            location = f"<LocationConstraint>{self._region}</LocationConstraint>"
            body = f"<CreateBucketConfiguration>{location}</CreateBucketConfiguration>".encode()
            connection.require("PUT", f"/{name}", body=body, allowed=(200,))

    def drop_database(self, connection: Bucketeer, name: str) -> None:
        """Remove the bucket with iosonde's objects if iosonde created it; an absent or an empty one is no error.

        The server may still store an object of an engine that was stopped: then the bucket is emptied again.
        """
        if connection.status("GET", f"/{name}", query={"list-type": "2", "max-keys": "1"}) == 404:
            return
        if connection.status("GET", f"/{name}/{OWNER}") != 200 and connection.keys(name, prefix=""):
            raise ServerError(
                f"the bucket `{name}` has no object `{OWNER}`, so iosonde did not create it, and it was not removed",
                where=f"at `{connection.server}`",
                hint="remove it with a client of your server",
                code="foreign_data",
            )
        deadline = time.monotonic() + DROP_S
        while time.monotonic() < deadline:
            while keys := connection.keys(name, prefix=OBJECTS):
                for key in keys:
                    connection.require("DELETE", f"/{name}/{quote(key)}", allowed=(200, 204, 404))
            foreign = [key for key in connection.keys(name, prefix="") if key != OWNER and not key.startswith(OBJECTS)]
            if foreign:
                raise ServerError(
                    f"the bucket `{name}` was not removed: it contains `{foreign[0]}`, which iosonde did not create",
                    where=f"at `{connection.server}`",
                    hint="remove what is in it with a client of your server",
                    code="foreign_data",
                )
            connection.require("DELETE", f"/{name}/{OWNER}", allowed=(200, 204))
            if connection.status("DELETE", f"/{name}") in (200, 204, 404):
                return
            # So that a later attempt removes it.
            connection.require("PUT", f"/{name}/{OWNER}", body=b"created by iosonde", allowed=(200,))
            time.sleep(POLL_S)
        raise ServerError(
            f"the bucket `{name}` was not removed: a client still writes objects to it",
            where=f"at `{connection.server}`",
            hint="end that client",
        )


class Bucketeer:
    """One connection, with one request at a time."""

    def __init__(self, address: Address, region: str) -> None:
        self._region = region
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.server = f"{host}:{address.port}"
        self._opened = http.client.HTTPConnection(address.host, address.port, timeout=ANSWER_S)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """S3 has no statements."""
        raise AssertionError("S3 has no statements")

    def close(self) -> None:
        self._opened.close()

    def keys(self, bucket: str, *, prefix: str) -> list[str]:
        """Up to a thousand names of objects with this prefix."""
        text = self.require("GET", f"/{bucket}", query={"list-type": "2", "prefix": prefix}, allowed=(200,))
        try:
            root = ElementTree.fromstring(text)
        except ElementTree.ParseError as error:
            raise self._error(f"it returned a list that is not XML: {error}", code="server") from None
        return [found.text for found in root.iter() if found.tag.rpartition("}")[2] == "Key" and found.text]

    def status(self, method: str, path: str, *, query: dict[str, str] | None = None) -> int:
        """Status of a request; access that is denied is an error."""
        return self._request(method, path, query or {}, b"")[0]

    def require(
        self,
        method: str,
        path: str,
        *,
        allowed: Sequence[int],
        query: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> bytes:
        """Body of a response; `ServerError` for another status."""
        status, answer = self._request(method, path, query or {}, body)
        if status not in allowed:
            code = re.search(rb"<Code>([A-Za-z]{1,60})</Code>", answer)
            reason = f" ({code[1].decode()})" if code else ""
            raise self._error(f"it answered `{method} {path}` with status {status}{reason}", code="server")
        return answer

    def _request(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, bytes]:
        text = "&".join(f"{name}={quote(value, safe='')}" for name, value in sorted(query.items()))
        headers = signed(
            method, path, text, host=self.server, region=self._region, now=datetime.datetime.now(datetime.UTC)
        )
        try:
            self._opened.request(method, f"{path}?{text}" if text else path, body=body or None, headers=headers)
            response = self._opened.getresponse()
            answer = response.read(LONGEST_ANSWER)
            if response.length:
                self._opened.close()
        except OSError as error:
            self._opened.close()
            raise self._error(f"it cannot be reached: {error.strerror or error}", code="connection_refused") from None
        except http.client.HTTPException as error:
            self._opened.close()
            raise self._error(f"its answer is not HTTP: {type(error).__name__}", code="server") from None
        if response.status in (401, 403):
            raise self._error("it denied access", code="authentication")
        return response.status, answer

    def _error(self, what: str, *, code: str) -> ServerError:
        hints = {
            "authentication": f"correct `{ACCESS_KEY}` and `{SECRET_KEY}`, the region, and the clock of this machine",
            "connection_refused": "see whether the server is running, and whether it requires encryption, which is not "
            "supported",
        }
        hint = hints.get(code, "see the server's own messages")
        return ServerError(f"the S3 server: {what}", where=f"at `{self.server}`", hint=hint, code=code)


def signed(method: str, path: str, query: str, *, host: str, region: str, now: datetime.datetime) -> dict[str, str]:
    """Headers that sign a request (AWS signature version 4, without the payload)."""
    second = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": host, "x-amz-content-sha256": _PAYLOAD, "x-amz-date": second}
    if token := os.environ.get(SESSION_TOKEN):
        headers["x-amz-security-token"] = token
    names = ";".join(headers)
    listed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"{method}\n{path}\n{query}\n{listed}\n{names}\n{_PAYLOAD}"
    scope = f"{second[:8]}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{second}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{os.environ.get(SECRET_KEY, '')}".encode()
    for part in (second[:8], region, "s3", "aws4_request", text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    credential = f"{os.environ.get(ACCESS_KEY, '')}/{scope}"
    return headers | {
        "authorization": f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={key.hex()}"
    }
