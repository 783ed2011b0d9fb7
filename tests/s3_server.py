"""moto, a model of S3 for tests that checks signatures."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import pytest

from iosonde.features.object_stores.s3 import S3, Bucketeer
from iosonde.servers.url import parse as parse_url
from iosonde.tools import TOOLS

MOTO = pytest.mark.needs("moto")
PAGE = 4
"""Names in one list of the server."""

USER = {
    "CreateUser": {},
    "CreateAccessKey": {},
    "PutUserPolicy": {
        "PolicyName": "objects",
        "PolicyDocument": '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}',
    },
}
"""Requests that create a user with all rights, after which moto accepts only signed requests."""


@dataclass
class Server:
    """moto on a port that it chose."""

    process: subprocess.Popen[str]
    port: int
    messages: list[str] = field(default_factory=list)
    """Its log: a line for each request."""

    @property
    def url(self) -> str:
        return f"s3://127.0.0.1:{self.port}"

    @property
    def buckets(self) -> dict[str, set[str]]:
        """Names of objects in each bucket, as far as one list has them."""
        connection = self.connect()
        root = ElementTree.fromstring(connection.require("GET", "/", allowed=(200,)))
        names = [
            found.text or ""
            for bucket in root.iter()
            if bucket.tag.endswith("}Bucket")
            for found in bucket
            if found.tag.endswith("}Name")
        ]
        found = {name: set(connection.keys(name, prefix="")) for name in names}
        connection.close()
        return found

    def connect(self) -> Bucketeer:
        return S3().connect(parse_url(self.url).address())

    def put(self, bucket: str, key: str = "", body: bytes = b"x") -> None:
        """Create a bucket or an object, as another client."""
        connection = self.connect()
        connection.require(
            "PUT", f"/{bucket}/{key}" if key else f"/{bucket}", body=body if key else b"", allowed=(200,)
        )
        connection.close()

    def empty(self) -> None:
        """Remove all buckets."""
        connection = self.connect()
        while found := self.buckets:
            for bucket, keys in found.items():
                for path in [*(f"/{bucket}/{quote(key)}" for key in keys), f"/{bucket}"]:
                    connection.status("DELETE", path)
        connection.close()


@contextmanager
def moto(*, port: int = 0, users: bool = True) -> Iterator[Server]:
    """The server, once it listens; without users it accepts any request."""
    program = Path(TOOLS["moto"].find() or "").expanduser()
    environment = {**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": str(PAGE)}
    if users:
        environment["INITIAL_NO_AUTH_ACTION_COUNT"] = str(len(USER))
    process = subprocess.Popen(
        [program, "-m", "moto.server", "--port", str(port)], env=environment, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    messages: list[str] = []
    reader = threading.Thread(target=lambda: messages.extend(process.stderr or []))
    try:
        for line in process.stderr:
            messages.append(line)
            if found := re.search(r"Running on http://127\.0\.0\.1:([0-9]+)", line):
                reader.start()
                yield Server(process, int(found[1]), messages)
                break
        else:
            raise AssertionError(f"moto did not start: {''.join(messages)}")
    finally:
        process.kill()
        process.wait()
        if reader.ident:
            reader.join()
        process.stderr.close()


def user_of(server: Server) -> dict[str, str]:
    """Credentials of a new user of the server."""
    scope = "Credential=x/20260101/us-east-1/iam/aws4_request"
    headers = {
        "host": "iam.amazonaws.com",
        "content-type": "application/x-www-form-urlencoded",
        "authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0",
    }
    answers = ""
    for action, parameters in USER.items():
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        body = urlencode({"Action": action, "Version": "2010-05-08", "UserName": "me", **parameters})
        connection.request("POST", "/", body, headers)
        answers += connection.getresponse().read().decode()
        connection.close()
    names = {"AWS_ACCESS_KEY_ID": "AccessKeyId", "AWS_SECRET_ACCESS_KEY": "SecretAccessKey"}
    return {name: re.findall(f"<{tag}>([^<]+)<", answers)[0] for name, tag in names.items()}
