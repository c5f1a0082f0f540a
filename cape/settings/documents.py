"""JSON that is no message: settings, policies, files of tools; a key twice is refused."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text says; ValueError if it is none, or has a key of an object twice."""
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Two readers would take two values.  The same as of messages in `cape.protocol.wire`, which
    # no module below the protocol may ask.
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key stands twice")
    return document
