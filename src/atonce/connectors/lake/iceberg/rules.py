"""What an Iceberg table asks of its writers, and whether we do it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlparse

from pyiceberg.transforms import UnknownTransform

from atonce.connectors.lake.storage import Bucket, Disk, Storage
from atonce.errors import UsageError

_NEWEST_FORMAT = 2
_SECRETS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")


def folder_uri(table: Any) -> str:
    """Where the data files of the table are."""
    return str(table.properties.get("write.data.path") or f"{table.location()}/data").rstrip("/")


def storage_of(table: Any) -> Storage:
    """The same, for tasks and driver."""
    parsed = urlparse(folder_uri(table))
    if parsed.scheme in ("", "file"):
        return Disk(parsed.path)  # as the library reads it: nothing is decoded
    if parsed.scheme in ("s3", "s3a"):
        given = {**table.catalog.properties, **table.io.properties}
        if secret := next((name for name in _SECRETS if name in given), None):
            raise UsageError(
                f"{secret} is among the properties of the catalogue, where tasks would not find it. Next: give "
                "credentials by the environment, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            )
        return Bucket(f"{parsed.netloc}{parsed.path}", given.get("s3.endpoint"), given.get("s3.region"))
    raise UsageError(
        f"the Iceberg table {'.'.join(table.name())} is at {folder_uri(table)}. Expected a directory or s3://: other "
        "places are not there yet."
    )


def refuse_rules(table: Any, where: str) -> None:
    """`UsageError` with the setting and its value, for what an append of files would pass by."""
    if table.format_version > _NEWEST_FORMAT:
        raise UsageError(
            f"{where} has format version {table.format_version}, and this writer knows up to {_NEWEST_FORMAT}. Next: "
            "write to another table."
        )
    for field in table.spec().fields:
        if isinstance(field.transform, UnknownTransform):
            raise UsageError(f"{where} is partitioned by {field.transform}, which this writer does not know")
    storage_of(table)
