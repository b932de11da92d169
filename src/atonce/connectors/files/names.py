"""Which names Spark's file source passes over without a word, and why; and the options that would make it do so."""

from __future__ import annotations

from collections.abc import Container, Mapping

from atonce.errors import UsageError

EVERY_AGE = "3650000d"
"""Spark never reads a file that is older than `maxFileAge` (seven days) against the newest it has seen, and `mv`,
`rsync -t`, `cp -p` and `tar` keep old times. Ten thousand years: a file with a clock of its own is read, too."""
GLOB_SIGNS = "{}[]*?\\"
_SPARKS_OWN = "_spark_metadata"


def why_passed_over(name: str) -> str:
    """Of a file or a directory by its own name; empty: Spark reads it."""
    if name.startswith("."):
        return "its name starts with '.'"
    if name.startswith("_") and (name.startswith(("_metadata", "_common_metadata")) or "=" not in name):
        return "its name starts with '_'"
    if name.endswith("._COPYING_"):
        return "its name ends with '._COPYING_'"
    return ""


def holds_no_rows(name: str, length: int, names: Container[str]) -> bool:
    """What writers leave beside their data: empty markers, Hadoop's checksums, the log of a Spark stream."""
    if length == 0 or name == _SPARKS_OWN:
        return True
    return name.startswith(".") and name.endswith(".crc") and name[1:-4] in names


def is_glob(path: str) -> bool:
    return any(sign in path for sign in GLOB_SIGNS)


def option(options: Mapping[str, str], name: str) -> str | None:
    """Spark knows its options by any case."""
    return next((str(value) for key, value in options.items() if key.lower() == name.lower()), None)


def refuse_blind_options(options: Mapping[str, str]) -> None:
    """Options under which Spark leaves files unread and says nothing."""
    age = option(options, "maxFileAge")
    if age is not None:
        raise UsageError(
            f"maxFileAge={age} is refused: files older than that against the newest one would never be read, and "
            "nothing would say so. Next: leave it out; files of every age are read."
        )
    if (option(options, "fileNameOnly") or "false").lower() == "true":
        raise UsageError(
            "fileNameOnly=true is refused: of two files of one name in different directories only the first would be "
            "read, and nothing would say so. Next: leave it out."
        )
    for name in ("cleanSource", "sourceArchiveDir"):
        if option(options, name) is not None:
            raise UsageError(f"{name} is not taken as an option of Spark. Next: use clean_source and archive_dir.")
