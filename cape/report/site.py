"""What stays at one site: everything about its own subjects, its ledger, a private page.

Nothing here is ever sent; the folder is called `private` so that nobody copies it by accident.
The page is made from the files of the folder and from nothing else (`cape.report.site_page`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms import subjects
from cape.algorithms.component_order import z_scores
from cape.algorithms.estimators import Array, Data
from cape.protocol.outcome import SiteOutcome
from cape.report import files
from cape.report.private_summary import PrivateSummary
from cape.report.site_page import write_page

Rows = list[tuple[str, ...]]


def write_site_files(folder: Path, site: SiteOutcome, inside: PrivateSummary | None = None) -> Path:
    """Write `private/` in `folder` and return the path of its page."""
    known = PrivateSummary() if inside is None else inside
    private = folder / "private"
    private.mkdir(parents=True, exist_ok=True)
    for old in private.glob("sub-*"):  # of an earlier run with other subjects
        old.unlink()
    written = _write_subjects(private, site, known)
    files.write_table(private / "subjects.tsv", _subject_table(site, known, written))
    rows: Rows = [(check.code, check.severity, _line(check.text)) for check in known.checks]
    files.write_table(private / "checks.tsv", (("code", "severity", "text"), rows))
    sent = "".join(json.dumps(dict(line)) + "\n" for line in known.sent)
    files.write_text(private / "sent.jsonl", sent)
    ledger = {"head": site.ledger.head, "entries": list(site.ledger.entries())}
    files.write_json(private / "ledger.json", {"site": site.site, **ledger})
    files.write_json(private / "site.json", _about(site, known))
    return write_page(private)


def _about(site: SiteOutcome, inside: PrivateSummary) -> dict[str, Any]:
    """Return the content of site.json: what the page needs beside the tables."""
    budget, total = site.ledger.budget, site.all_runs
    phases = [event.phase for event in site.ledger.events]
    return {
        "schema": "cape-site-1",
        "site": site.site,
        "status": site.outcome_status,
        "fingerprint": site.fingerprint,
        "components": list(site.names),
        "feature_space": None if site.space is None else site.space.kind,
        "grid": [] if site.space is None else list(site.space.shape),
        "settings": dict(site.settings),
        "epsilon_spent": site.ledger.epsilon_spent(),
        "epsilon_allowed": None if budget is None else budget.epsilon,
        "delta": None if budget is None else budget.delta,
        "all_runs": None
        if total is None
        else {"runs": total.runs, "mu": total.mu, "epsilon": total.epsilon, "delta": total.delta},
        "releases": {phase: phases.count(phase) for phase in dict.fromkeys(phases)},
        "policy": dict(inside.policy),
    }


def file_stem(label: str) -> str:
    """Return `sub-<label>` with nothing in it that a file name should not have."""
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", label).strip("-") or "unnamed"
    return clean if clean.startswith("sub-") else f"sub-{clean}"


@dataclass(kw_only=True, slots=True)
class _Written:
    """What was written subject by subject."""

    labels: list[str] = field(default_factory=list)
    stems: list[str] = field(default_factory=list)
    timepoints: list[int] = field(default_factory=list)
    connectivity: Rows = field(default_factory=list)
    spectra: Rows = field(default_factory=list)
    agreement: Rows = field(default_factory=list)


def _write_subjects(private: Path, site: SiteOutcome, inside: PrivateSummary) -> _Written:
    """Write all files that single subjects have, one subject in memory at a time."""
    done, taken = _Written(), set[str]()
    z = None if site.A is None else z_scores(site.A)
    voxels = inside.voxels() if inside.voxels is not None and z is not None else iter(())
    known: Iterator[Any] = iter(inside.subjects)
    for label, courses in site.time_courses:
        stem = _free(file_stem(label), taken)
        _write_courses(private / f"{stem}_timecourses.tsv", site.names, courses)
        done.labels.append(label)
        done.stems.append(stem)
        done.timepoints.append(courses.shape[1])
        facts = next(known, None)
        _add_courses(done, stem, courses, 0.0 if facts is None else float(facts.tr))
        found = next(voxels, None)
        if found is not None and z is not None:
            if found[0] != label:
                raise RuntimeError("the data of a site changed their order")
            _write_maps(private, stem, site, subjects.subject_maps(found[1], courses), z, done)
    if site.names:
        _write_tables(private, site.names, done)
    return done


def _free(stem: str, taken: set[str]) -> str:
    """Return the stem, with a number if another subject has it."""
    number, name = 1, stem
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    taken.add(name)
    return name


def _write_courses(path: Path, names: tuple[str, ...], courses: Data) -> None:
    rows = [tuple(format(x, ".7g") for x in row) for row in courses.T.tolist()]
    files.write_table(path, (names, rows))


def _add_courses(done: _Written, stem: str, courses: Data, tr: float) -> None:
    upper = np.triu_indices(len(courses), 1)
    z = subjects.fisher(subjects.connectivity(courses)[upper])
    done.connectivity.append((stem, *(format(x, ".6g") for x in z.tolist())))
    found = subjects.spectrum(courses, tr)
    unit = "Hz" if tr > 0 else "per time point"
    for frequency, power in zip(found.frequency.tolist(), found.power.T.tolist(), strict=True):
        cells = (format(x, ".6g") for x in (frequency, *power))
        done.spectra.append((stem, unit, *cells))


def _write_maps(
    private: Path, stem: str, site: SiteOutcome, own: Array, common: Array, done: _Written
) -> None:
    """Write the maps of one subject and note how far they agree with the common ones."""
    r = subjects.agreement(own, common)
    done.agreement.append((stem, *(format(x, ".4g") for x in r.tolist())))
    if site.space is None or site.space.kind == "matrix":
        rows = [tuple(format(x, ".6g") for x in row) for row in own.tolist()]
        text = "\n".join(",".join(row) for row in (site.names, *rows))
        files.write_text(private / f"{stem}_maps.csv", text + "\n")
        return
    mni = files.in_mni(site.settings)
    image = files.nifti(own, site.space, stamp="cape PRIVATE subject", mni=mni, level=1)
    (private / f"{stem}_maps.nii.gz").write_bytes(image)


def _write_tables(private: Path, names: tuple[str, ...], done: _Written) -> None:
    pairs = [f"{a}-{b}" for i, a in enumerate(names) for b in names[i + 1 :]]
    files.write_table(private / "fnc.tsv", (("subject", *pairs), done.connectivity))
    header = ("subject", "unit", "frequency", *names)
    files.write_table(private / "spectra.tsv", (header, done.spectra))
    if done.agreement:
        table = (("subject", *names), done.agreement)
        files.write_table(private / "map_agreement.tsv", table)


def _subject_table(site: SiteOutcome, inside: PrivateSummary, done: _Written) -> files.Table:
    """Return subjects.tsv: one row per subject, those left out at the end."""
    phases = [name for name, _ in site.clip_scales]
    header = ("subject", "label", "files", "timepoints", "tr", "coverage", "rank", "grid",
              "verdict", *(f"clip_{name}" for name in phases))  # fmt: skip
    rows: Rows = []
    scales = list(zip_longest(*(values for _, values in site.clip_scales)))
    for k, (label, stem) in enumerate(zip(done.labels, done.stems, strict=True)):
        facts = inside.subjects[k] if k < len(inside.subjects) else None
        about: tuple[object, ...] = (None,) * 5
        if facts is not None:
            names = "; ".join(facts.files)
            about = (names, facts.tr or None, facts.coverage, facts.rank, facts.grid)
        own = scales[k] if k < len(scales) else (None,) * len(phases)
        cells = (about[0], done.timepoints[k], *about[1:], "accepted", *own)
        rows.append((stem, _line(label), *(_line(files.cell(x)) for x in cells)))
    blank = (files.MISSING,) * 6
    end = (files.MISSING,) * len(phases)
    rows += [(files.MISSING, _line(label), *blank, "left out", *end) for label in inside.excluded]
    return header, rows


def _line(text: str) -> str:
    """Return a text that fits one cell of a table."""
    return " ".join(text.split())


def append_sent(private: Path, line: Mapping[str, object]) -> None:
    """Add the reply that closes the run to sent.jsonl, if this site has one."""
    path = private / "sent.jsonl"
    if path.is_file():
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(dict(line)) + "\n")
