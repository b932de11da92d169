"""Which kind of file system a path is on: some forget at a reboot, some do not keep locks."""

from __future__ import annotations

from pathlib import Path

import psutil

NETWORK = frozenset(
    {"nfs", "nfs3", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "ncpfs", "fuse.sshfs", "fuse.glusterfs", "davfs"}
)
IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def kind_of(path: Path | str) -> str:
    """Its name as mount tables write it; empty when it cannot be told."""
    place = Path(path).resolve()
    best, kind = "", ""
    for each in psutil.disk_partitions(all=True):
        if place.is_relative_to(each.mountpoint) and len(each.mountpoint) >= len(best):
            best, kind = each.mountpoint, each.fstype
    return kind
