"""Images of a BIDS derivatives folder, as fMRIPrep writes it, and the confound tables beside them.

One name pattern is understood: ``sub-<label>/[ses-<label>/]func/*_bold.nii.gz``.  Which of them
are taken is the owner's setting `bids_filter`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cape.config import parse_entities
from cape.data.findings import Findings
from cape.data.manifest import ManifestRow

PATTERNS = ("sub-*/func/*_bold.nii*", "sub-*/ses-*/func/*_bold.nii*")
CONFOUND_ENDS = ("_desc-confounds_timeseries.tsv", "_desc-confounds_regressors.tsv")
VERSIONS = ("space", "res", "desc", "den", "cohort")
"""Entities that tell versions of one run apart."""

MOST_SHOWN = 6


def is_bids(base: Path) -> bool:
    """Tell whether a folder holds images in the BIDS layout."""
    return any(True for pattern in PATTERNS for _ in base.glob(pattern))


def entities_of(name: str) -> dict[str, str]:
    """Return the entities of a file name, ``sub-01_task-rest_bold.nii.gz`` -> sub, task."""
    parts = name.split(".")[0].split("_")[:-1]
    pairs = (part.partition("-") for part in parts)
    return {key: value for key, dash, value in pairs if dash}


def confounds_of(image: Path) -> Path | None:
    """Return the confound table beside an image that has a BIDS name, None without one."""
    kept = [f"{k}-{v}" for k, v in entities_of(image.name).items() if k not in VERSIONS]
    if not kept:
        return None
    tables = (image.with_name("_".join(kept) + end) for end in CONFOUND_ENDS)
    return next((table for table in tables if table.is_file()), None)


def bids_rows(
    base: Path, folder: str, wanted_text: str, findings: Findings
) -> tuple[ManifestRow, ...]:
    """Return the runs of a derivatives folder that have the wanted entities.

    Parameters
    ----------
    base : Path
        The site's folder.
    folder : str
        The derivatives, relative to `base`; "" or "." for the folder itself.
    wanted_text : str
        `bids_filter`, such as ``task-rest_space-MNI152NLin2009cAsym``.
    findings : Findings
        Receives rows 4 and 5.
    """
    wanted = dict(parse_entities(wanted_text))
    top = base / folder
    found = sorted({path for pattern in PATTERNS for path in top.glob(pattern)})
    rows: list[ManifestRow] = []
    versions: dict[tuple[tuple[str, str], ...], str] = {}
    for path in found:
        entities = entities_of(path.name)
        if any(entities.get(key) != value for key, value in wanted.items()):
            continue
        name = path.relative_to(base).as_posix()
        run = tuple((k, v) for k, v in entities.items() if k not in VERSIONS)
        if run in versions:
            _several_versions(versions[run], name, findings)
            continue
        versions[run] = name
        order = "_".join(f"{key}-{value}" for key, value in run if key not in ("sub", "ses"))
        label = f"sub-{entities.get('sub', path.name)}"
        rows.append(
            ManifestRow(file=name, subject=label, ses=entities.get("ses", ""), run=order)
        )  # fmt: skip
    if not rows:
        _none_matches(folder or ".", wanted_text, [path.name for path in found], findings)
    return tuple(rows)


def _several_versions(first: str, second: str, findings: Findings) -> None:
    findings.add(
        5, "E", "One run is there in several versions, and bids_filter fits them all",
        f"{first} and {second}", expected="one image per run",
        fix="name the version in bids_filter (the owner), such as res-2",
    )  # fmt: skip


def _none_matches(folder: str, wanted: str, names: list[str], findings: Findings) -> None:
    seen: Mapping[str, set[str]] = {key: set() for key in ("task", *VERSIONS[:3])}
    for name in names:
        for key, value in entities_of(name).items():
            if key in seen:
                seen[key].add(f"{key}-{value}")
    there = ", ".join(sorted(value for values in seen.values() for value in values)[:MOST_SHOWN])
    findings.add(
        4, "E", "No image of the BIDS folder fits bids_filter",
        f"{len(names)} images below {folder}" + (f" with {there}" if there else ""),
        expected=f"sub-*/[ses-*/]func/*_bold.nii.gz with {wanted}",
        fix="correct the folder, or ask the owner for another bids_filter",
    )  # fmt: skip
