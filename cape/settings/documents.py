"""JSON other than messages: settings, policies, files of tools; repeated keys are refused."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np

# Field metadata: omit the field while it is empty
UNLESS_EMPTY: Final = {"unless_empty": True}


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; ValueError if it is malformed or repeats a key."""
    return json.loads(text, object_pairs_hook=no_repeated_keys)


def no_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the mapping of a JSON object; ValueError for a repeated key."""
    # Readers disagree about which of two values counts.
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key stands twice")
    return document


def not_default(record: Any) -> dict[str, Any]:
    """Return the fields of a record that differ from their defaults."""
    # A field without a default compares unequal to every value.
    values = {field.name: (getattr(record, field.name), field.default) for field in fields(record)}
    return {name: value for name, (value, default) in values.items() if value != default}


def toml_text(values: Mapping[str, object]) -> str:
    return "".join(f"{name} = {toml_value(value)}\n" for name, value in values.items())


def toml_value(value: object) -> str:
    """Return a value as TOML writes it, tables in one line."""
    if isinstance(value, Mapping):
        pairs = (f"{toml_key(str(name))} = {toml_value(one)}" for name, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    # TOML writes lists, strings, numbers and booleans as JSON does.
    return json.dumps(value, ensure_ascii=False)


def toml_key(name: str) -> str:
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return name if bare else json.dumps(name, ensure_ascii=False)


def plain_json(value: object) -> object:
    """Convert records, mappings and arrays for JSON; NaN and infinity become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain_json(getattr(value, field.name))
            for field in fields(value)
            if getattr(value, field.name) or not field.metadata.get("unless_empty")
        }
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        items: Iterable[object] = value.tolist() if isinstance(value, np.ndarray) else value
        return [plain_json(item) for item in items]
    # Convert before the float test: numpy's float64 is a float, its float32 is not.
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
