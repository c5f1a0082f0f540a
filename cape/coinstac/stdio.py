"""``local.py`` and ``remote.py``: one document on stdin, one answer on stdout, then the end.

COINSTAC's first version calls a computation like this for every round; the second keeps a server
(`cape.coinstac.service`).  Both end in `cape.coinstac.computation.run`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from cape.coinstac.computation import run
from cape.coinstac.documents import MAX_DOCUMENT, encode_response
from cape.errors import CapeError, MessageError, public_text
from cape.protocol import wire


def main(role: str) -> int:
    """Read one document from stdin, write one to stdout; stray prints cannot mix with it.

    Returns
    -------
    int
        0, or 1 after writing the public text of an error to stderr.
    """
    answers, errors = os.dup(1), os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        text = sys.stdin.buffer.read(MAX_DOCUMENT + 1)
        line = encode_response(role, run(role, document_of(text))) + b"\n"
    except Exception as err:  # the engine shows stderr to all: the public text, nothing else
        _write(errors, (public_text(err) + "\n").encode("ascii", "replace"))
        return 1
    _write(answers, line)
    return 0


def document_of(text: bytes | str) -> dict[str, Any]:
    """Return the engine's document in a text; MessageError E158 if there is none."""
    try:
        document = wire.loads(text, MAX_DOCUMENT)
    except CapeError:
        raise MessageError("E158", problem="what came is not one JSON document") from None
    if not isinstance(document, dict):
        raise MessageError("E158", problem="the document is not a mapping")
    return document


def _write(handle: int, data: bytes) -> None:
    """Write all bytes to a descriptor and close it."""
    with os.fdopen(handle, "wb") as file:
        file.write(data)
