"""Entities of names in BIDS, and the natural order of names."""

from __future__ import annotations

import re
from collections.abc import Mapping

Entities = tuple[tuple[str, str], ...]


def natural_key(name: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """Return a sort key that puts ``run-2`` before ``run-10``."""
    parts = re.split(r"(\d+)", name.lower())
    key = tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts if p)
    return key, name


def entities_of(name: str) -> dict[str, str]:
    """Split the entities off, ``sub-01_task-rest_bold.nii.gz`` -> {sub: 01, task: rest}."""
    parts = name.split(".")[0].split("_")[:-1]
    pairs = (part.partition("-") for part in parts)
    return {key: value for key, dash, value in pairs if dash}


def has_all(entities: Mapping[str, str], wanted: Entities) -> bool:
    """Tell whether a name has all wanted entities; ``+`` separates alternatives."""
    return all(entities.get(key) in value.split("+") for key, value in wanted)
