"""Large arrays beside the messages: files that the engine carries through transferDirectory.

A document with an array above `LARGEST_INLINE` would be slow in the engine's JavaScript and may
pass its limits.  Such an array leaves the document for a file of its own: raw little-endian bytes,
nothing to parse, nothing that could run.  The document names the file and its SHA-256, so an old
file, a damaged one or another sender's is never read.  What the array means and what type it has
stands in the table of the computation as ever; here it is bytes.

Both ends keep the whole array in their journals and digests: the file is a way, not a place.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cape.errors import MessageError
from cape.protocol import wire

# Largest array that stays inside a message, bytes.
LARGEST_INLINE = wire.MAX_TEXT
# Bytes of all files of one message: a short message could name a large file many times.
MOST_INLINED = 4 * wire.MAX_ARRAY
REFERENCE = {"file", "sha256", "shape"}
ARRAY = {"base64", "shape"}
NAME = re.compile(r"[0-9a-f]{8,64}-\d{1,6}-[a-z][a-z.-]{0,63}-\d{1,6}-[0-9a-f]{16}\.bin")

Json = Any


def offload(output: Json, folder: Path) -> Json:
    """Return the message with its large arrays replaced by names of files in `folder`.

    OSError if one cannot be written: the answer is stored, so the step may be asked again.
    """
    # Only an envelope has large arrays; a summary for people comes back as it is.
    if not isinstance(output, Mapping) or "body" not in output:
        return output
    # A name of its own for every round: the engine never deletes what it carried.
    head = "-".join(str(output[name]) for name in ("run", "seq", "phase", "round"))

    def leave(array: dict[str, Any]) -> Json:
        if len(array["base64"]) * 3 // 4 <= LARGEST_INLINE:
            return array
        raw = base64.b64decode(array["base64"])
        digest = hashlib.sha256(raw).hexdigest()
        name = f"{head}-{digest[:16]}.bin"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)
        return {"file": name, "sha256": digest, "shape": array["shape"]}

    return {**output, "body": _replaced(output["body"], ARRAY, leave)}


def inline(message: Json, folder: Path) -> Json:
    """Return the message with the arrays of its files put back where their names stand.

    MessageError if one is missing, too large, or not the one that the message names.
    """
    if not isinstance(message, Mapping) or "body" not in message:
        return message
    # Counted over the whole message: each file alone may be within its limit.
    left = MOST_INLINED

    def put_back(reference: dict[str, Any]) -> Json:
        nonlocal left
        raw = _read(reference, folder, left)
        left -= len(raw)
        return {"base64": base64.b64encode(raw).decode("ascii"), "shape": reference["shape"]}

    return {**message, "body": _replaced(message["body"], REFERENCE, put_back)}


def _read(reference: Mapping[str, Any], folder: Path, left: int) -> bytes:
    name, digest = reference["file"], reference["sha256"]
    # A peer names the file: nothing but a name of ours, so no path and no other file of the site.
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise _refuse("a file's name is not one of ours")
    path = folder / name
    try:
        # Asked before it is read: a peer must not fill the memory, nor point a link elsewhere.
        size = path.stat().st_size
        if path.is_symlink() or size > wire.MAX_ARRAY:
            raise _refuse(f"a file is larger than {wire.MAX_ARRAY} bytes or no file")
        if size > left:
            raise _refuse(f"its files are larger than {MOST_INLINED} bytes together")
        raw = path.read_bytes()
    except OSError:
        raise _refuse("a file that the message names did not arrive") from None
    if hashlib.sha256(raw).hexdigest() != digest:
        raise _refuse("a file is not the one that the message names")
    return raw


def _refuse(problem: str) -> MessageError:
    return MessageError("E202", problem=problem)


def _replaced(node: Json, keys: set[str], change: Callable[[dict[str, Any]], Json]) -> Json:
    if isinstance(node, dict):
        if set(node) == keys and isinstance(node[min(keys)], str):
            return change(node)
        return {key: _replaced(item, keys, change) for key, item in node.items()}
    if isinstance(node, list):
        return [_replaced(item, keys, change) for item in node]
    return node
