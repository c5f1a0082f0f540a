"""Gzip files read by the package `isal` if it is installed, else by zlib."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

_engine: Any = zlib
try:
    from isal import isal_zlib
except ImportError:  # optional: half the time of zlib, and the same bytes
    pass
else:
    _engine = isal_zlib

# Errors of a damaged file; the first one means that it ends too early.
DAMAGED: Final[tuple[type[Exception], ...]] = (EOFError, zlib.error, _engine.error)

# Bytes that are unpacked at a time.
PACKED_BLOCK: Final = 1 << 18
# A gzip header and check sum around deflated data.
_GZIP: Final = 31


class Unpacked:
    """The bytes of a gzip file, all its members; reads forward only and keeps at most a block."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read  # returns at most so many packed bytes, none at the end
        self._member: Any = _engine.decompressobj(_GZIP)
        self._rest = b""  # packed bytes that are not yet unpacked
        self._started = False  # whether this member has any bytes

    def read(self, size: int) -> bytes:
        """Return `size` bytes, fewer at the end only; EOFError: a member is cut off."""
        parts = []
        while size > 0:
            if self._member.eof:
                self._rest = self._member.unused_data
                self._member, self._started = _engine.decompressobj(_GZIP), False
            if not self._started:
                self._rest = self._rest.lstrip(b"\0")  # padding between members
            self._rest = self._rest or self._read(PACKED_BLOCK)
            if not self._rest:
                if not self._started:
                    break
                raise EOFError("the data end before the end-of-stream marker")
            if not self._started and not self._rest.strip(b"\0"):
                self._rest = b""
                continue
            self._started = True
            part = self._member.decompress(self._rest, size)
            self._rest = self._member.unconsumed_tail
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
