"""Entities of names, confound tables beside images, and names of runs, by BIDS."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cape.data.layout.words import words
from cape.data.runs import RunFile

# Entities by which runs of a session differ, in the order of BIDS
RUN_ENTITIES: Final = ("task", "acq", "ce", "rec", "dir", "run", "echo")
CONFOUND_ENDS: Final = ("_desc-confounds_timeseries.tsv", "_desc-confounds_regressors.tsv")

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


def confounds_beside(image: Path) -> Path | None:
    """Return the table of an image's run, None if there is none.

    One table serves all versions of a run: its name lacks their last entities, except those of
    another run.
    """
    named = image.name.split(".")[0].split("_")[:-1]
    while named and "-" in named[-1]:
        for end in CONFOUND_ENDS:
            table = image.with_name("_".join(named) + end)
            # A link without content counts, so that a later check reports it.
            if table.is_file() or table.is_symlink():
                return table
        if named[-1].partition("-")[0] in (*words("run_entities"), "sub"):
            return None
        named.pop()
    return None


def names_of_runs(runs: Sequence[RunFile]) -> list[tuple[str, str]]:
    """Return session and other entities of each run of a person, ("ses-1", "task-rest_run-1").

    If names repeat, runs are numbered.
    """
    sessions = [_bare(run.ses.removeprefix("ses-")) for run in runs]
    entities = [_entities(run.run) for run in runs]
    if len({*zip(sessions, map(_joined, entities), strict=True)}) < len(runs):
        entities = [{**named, "run": str(k)} for k, named in enumerate(entities, start=1)]
    return [
        (session and f"ses-{session}", _joined(named))
        for session, named in zip(sessions, entities, strict=True)
    ]


def _entities(text: str) -> dict[str, str]:
    # A list says "2", the name of an image "task-rest_run-2"; a folder's name may say anything.
    given = dict(part.split("-", 1) for part in text.split("_") if "-" in part) or {"run": text}
    return {key: _bare(given[key]) for key in RUN_ENTITIES if _bare(given.get(key, ""))}


def _bare(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "", text)


def _joined(entities: Mapping[str, str]) -> str:
    return "_".join(f"{key}-{entities[key]}" for key in RUN_ENTITIES if key in entities)
