"""moto, a model of S3 for tests that checks signatures."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import pytest

from iosonde.base.tools import TOOLS
from iosonde.features.object_stores.s3 import S3, Bucketeer
from iosonde.study.servers.foreign import parse as parse_url

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


PROGRAM = """
from moto.s3.models import FakeKey
from moto.server import main

unlocked = FakeKey.etag.fget


def etag(key):
    with key.lock:
        return unlocked(key)


FakeKey.etag = property(etag)
FakeKey.dispose = lambda key, garbage=False: None
main()
"""
"""moto without two races: it closes the data of an object that is replaced while others read it, and moves their place in
it when it computes its checksum."""


@dataclass
class Server:
    """moto on a port that it chose."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    """A line for each request."""

    @property
    def url(self) -> str:
        return f"s3://127.0.0.1:{self.port}"

    @property
    def buckets(self) -> dict[str, set[str]]:
        """Names of objects in each bucket, as far as one list has them."""
        connection = self.connect()
        root = ElementTree.fromstring(connection.require("GET", "/", allowed=(200,)))
        names = [found.text or "" for found in root.iterfind("{*}Buckets/{*}Bucket/{*}Name")]
        found = {name: set(connection.keys(name, prefix="")) for name in names}
        connection.close()
        return found

    def connect(self) -> Bucketeer:
        return S3().connect(parse_url(self.url).address())

    def put(self, bucket: str, key: str = "", body: bytes = b"x") -> None:
        """Create a bucket or an object, as another client."""
        connection = self.connect()
        path = f"/{bucket}/{key}" if key else f"/{bucket}"
        connection.require("PUT", path, body=body if key else b"", allowed=(200,))
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
    with tempfile.NamedTemporaryFile(prefix="iosonde-test-moto-") as log:
        command = [program, "-c", PROGRAM, "--port", str(port)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
        server = Server(process, port, Path(log.name))
        try:
            while not (found := re.search(r"Running on http://127\.0\.0\.1:([0-9]+)", server.log.read_text())):
                assert process.poll() is None, f"moto did not start: {server.log.read_text()}"
                time.sleep(0.05)
            server.port = int(found[1])
            yield server
        finally:
            process.kill()
            process.wait()


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
