"""When a file was made, which Python does not tell on Linux: two files may have one inode number, one after another."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_AT_FDCWD = -100
_STATX_BTIME = 0x800
_MASK_AT, _BTIME_AT = 0, 80
_SIZE = 256


def birth_ns(path: Path | str) -> int:
    """0 where the file system, or the C library, does not know."""
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return 0
    found = (ctypes.c_ubyte * _SIZE)()
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, ctypes.byref(found)) != 0:
        return 0
    mask = ctypes.c_uint32.from_buffer(found, _MASK_AT).value
    if not mask & _STATX_BTIME:
        return 0
    seconds = ctypes.c_int64.from_buffer(found, _BTIME_AT).value
    return seconds * 1_000_000_000 + ctypes.c_uint32.from_buffer(found, _BTIME_AT + 8).value
