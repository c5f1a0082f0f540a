"""JSON that is no message: settings, policies, files of tools; a key twice is refused."""

from __future__ import annotations

import json
from typing import Any


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; ValueError if it has a key twice: two readers would take two values."""
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key stands twice")
    return document


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text says, for whatever is no message; ValueError as for `unique_keys`."""
    return json.loads(text, object_pairs_hook=unique_keys)
