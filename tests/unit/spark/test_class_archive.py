"""The cache of class archives."""

from __future__ import annotations

from pathlib import Path

from atonce.spark.start.class_archive import remove_orphans


def test_only_archives_of_environments_that_are_gone_are_removed(tmp_path: Path) -> None:
    here = tmp_path / "venv" / "pyspark"
    here.mkdir(parents=True)
    cache = tmp_path / "cache"
    cache.mkdir()
    for name, home in (("mine", here), ("orphan", tmp_path / "deleted" / "pyspark")):
        (cache / f"{name}.jsa").write_bytes(b"classes")
        (cache / f"{name}.pyspark").write_text(str(home))
    (cache / "unknown.jsa").write_bytes(b"made before notes were kept: whose it is cannot be told")
    remove_orphans(cache)
    assert sorted(file.name for file in cache.iterdir()) == ["mine.jsa", "mine.pyspark", "unknown.jsa"]
