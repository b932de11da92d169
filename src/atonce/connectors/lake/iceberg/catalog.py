"""The catalogue that a pipeline's table is in, by pyiceberg's own properties."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atonce.errors import UsageError

_DURABLE = "atonce.connectors.lake.iceberg.durable.DurableFileIO"
_SQLITE = "sqlite:///"
_OPEN: dict[tuple[tuple[str, str], ...], tuple[tuple[int, int], Any]] = {}


def file_of(properties: Mapping[str, Any]) -> Path | None:
    """The file of a catalogue in SQLite."""
    uri = str(properties.get("uri", ""))
    return Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None


def opened(properties: Mapping[str, Any]) -> Any:
    """pyiceberg's catalogue, kept open. One in SQLite is made by this, if it is missing."""
    key = tuple(sorted((name, str(value)) for name, value in properties.items()))
    file = file_of(properties)
    kept, catalog = _OPEN.get(key, (None, None))
    if catalog is None or kept is None or (file is not None and kept != _which(file)):
        catalog = _load(properties)
        _OPEN[key] = (_which(file) if file is not None else (0, 0), catalog)
    return catalog


def _which(file: Path) -> tuple[int, int]:
    """A file that was restored is another one under the same name."""
    found = file.stat() if file.exists() else None
    return (-1, -1) if found is None else (found.st_dev, found.st_ino)


def _load(properties: Mapping[str, Any]) -> Any:
    from pyiceberg.catalog import load_catalog

    logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # a conflict is told by us, once it is understood
    given = {key: str(value) for key, value in properties.items() if key != "name"}
    given.setdefault("py-io-impl", _DURABLE)
    if "warehouse" in given and "://" not in given["warehouse"] and file_of(properties) is not None:
        given["warehouse"] = str(Path(given["warehouse"]).absolute())  # it goes into the names of all files
    told = os.environ.get  # the library does not ask for these two
    for name, found in (
        ("s3.endpoint", told("AWS_ENDPOINT_URL_S3") or told("AWS_ENDPOINT_URL")),
        ("s3.region", told("AWS_REGION") or told("AWS_DEFAULT_REGION")),
    ):
        if found:
            given.setdefault(name, found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_catalog(str(properties.get("name", "default")), **given)


def found(properties: Mapping[str, Any], name: str) -> Any | None:
    """The table, or None where there is none; a look makes nothing."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    file = file_of(properties)
    if file is not None and not file.exists():
        return None
    try:
        return opened(properties).load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def refuse_unusable(properties: Mapping[str, Any], name: str) -> None:
    """One line for what can be told before anything is asked."""
    if not name or len([part for part in name.split(".") if part]) < 2:
        raise UsageError(f"Iceberg needs table: NAMESPACE.NAME, got {name!r}")
    if not isinstance(properties, Mapping) or not properties:
        raise UsageError(
            "Iceberg needs catalog: the properties of pyiceberg's catalogue, such as {type: sql, uri: "
            "sqlite:////data/catalog.db, warehouse: /data/warehouse}"
        )
    file = file_of(properties)
    if file is not None and not file.parent.is_dir():
        raise UsageError(f"the directory {file.parent} of the catalogue {file} does not exist")
