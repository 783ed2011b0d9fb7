"""S3 servers that the user runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from iosonde.servers.foreign import ServerKind, ServerUrl

if TYPE_CHECKING:
    from iosonde.servers.server import DatabaseHost


def bucket(url: ServerUrl, name: str, region: str) -> dict[str, Any]:
    """A bucket as the spec of a workload on objects has it."""
    return {"kind": "s3", "host": url.host, "port": url.port, "bucket": name, "region": region}


class _S3(ServerKind):
    name = "s3"
    schemes = ("s3", "http", "https")
    port = 80
    noun = "bucket"
    passwords = "`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`"

    def check(self, parts: SplitResult) -> None:
        if parts.scheme == "https":
            raise ValueError(
                "an S3 server with encryption is not supported: write `http://HOST:PORT` or `s3://HOST:PORT`"
            )
        if parts.username and parts.password is None:
            raise ValueError(f"`{parts.geturl()}` names a user; S3 has credentials in {self.passwords}")

    def password(self) -> None:
        """Its client reads the credentials itself."""

    def client_options(self, parameters: Mapping[str, Any]) -> dict[str, str]:
        return {"region": str(parameters["region"])}

    def host(self, options: Mapping[str, Any]) -> DatabaseHost:
        from iosonde.features.object_stores.s3 import DEFAULT_REGION, S3

        return S3(region=options.get("region", DEFAULT_REGION))

    def database_of(self, workload: Mapping[str, Any]) -> str:
        return str(workload["store"]["bucket"])

    def is_used(self, url: ServerUrl, workload: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
        return bool(workload["store"] == bucket(url, self.database_of(workload), str(parameters["region"])))


KINDS = (_S3(),)
