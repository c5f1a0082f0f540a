"""Whose a file is, by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath

Entities = tuple[tuple[str, str], ...]


def natural_key(name: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """Return a sort key that puts ``run-2`` before ``run-10``."""
    parts = re.split(r"(\d+)", name.lower())
    key = tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts if p)
    return key, name


def subject_of(name: str) -> str:
    """Return ``sub-<label>`` of a file name or its folders, else the name without its ending."""
    pure = PurePath(name)
    for part in (pure.name, *reversed(pure.parts[:-1])):
        if match := re.search(r"sub-[A-Za-z0-9]+", part):
            return match.group()
    return re.sub(r"(\.nii)?\.[A-Za-z0-9]+$", "", pure.as_posix())


def entities_of(name: str) -> dict[str, str]:
    """Split the entities off, ``sub-01_task-rest_bold.nii.gz`` -> {sub: 01, task: rest}."""
    parts = name.split(".")[0].split("_")[:-1]
    pairs = (part.partition("-") for part in parts)
    return {key: value for key, dash, value in pairs if dash}


def has_all(entities: Mapping[str, str], wanted: Entities) -> bool:
    """Tell whether a name has all entities that are wanted; ``+`` stands between choices."""
    return all(entities.get(key) in value.split("+") for key, value in wanted)
