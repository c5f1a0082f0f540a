"""The corpus of real layouts through the command and discovery: who is a person in a private run.

Files lie on a disk; what `cape people` prints is typed into it as a user would.

Belongs to `cape/planning/people.py`.
"""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

import pytest

from cape.cli import main
from cape.data.discovery import discover
from cape.data.issues import Findings
from cape.planning.consortium_folder import read_whole, sites_below
from cape.privacy.accounting import gdp_epsilon, gdp_mu
from cape.settings.config import Config
from test.support.file_lists import Case, corpus

CASES = corpus()
LEVELS = {"right": "proved", "typed": "inferred", "choice": "choice", "refused": "unknown"}
EPSILON, DELTA = 8.0, 1e-5


def laid_out(case: Case, base: Path) -> Path:
    for path in case.paths:
        place = base / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"\x5c\x01\0\0")
    return base


def asked(folder: Path, capsys, *typed: str) -> dict[str, object]:
    code = main(["people", str(folder), *typed, "--json"])
    out = capsys.readouterr().out
    return json.loads(out.splitlines()[-1]) if code == 0 else {"level": "refused"}


def private_run(case: Case, folder: Path) -> tuple[list[tuple[str, list[str]]], set[str]]:
    """Return the people of a private run with their files, and the findings that stop the site."""
    if case.kind == "matrix":
        space = "matrix"
    elif case.kind == "volume":
        space = "mask"
    else:
        dense = any(path.endswith(".dtseries.nii") for path in case.paths)
        space = "grayordinates" if dense else "parcels"
    config = Config(epsilon=EPSILON, delta=DELTA, feature_space=space, bids_filter="")
    found: list[tuple[str, list[str]]] = []
    stops: set[str] = set()
    for base in sites_of(folder).values():
        findings = Findings("B")
        front = "" if base == folder else f"{base.name}/"
        for each in discover(base, {}, config, findings):
            found.append((each.label, [front + run.name for run in each.runs]))
        stops |= {finding.code for finding in findings.listing() if finding.severity == "E"}
    return found, stops


def sites_of(folder: Path) -> dict[str, Path]:
    return sites_below(folder, read_whole(folder)) or {"": folder}


def check_people(case: Case, found: list[tuple[str, list[str]]]) -> None:
    """Nobody is two subjects, no subject is two people, and nobody's scan counts as two runs."""
    everybody = {truth.person for truth in case.files.values() if truth.role != "beside"}
    assert len(found) == len(everybody)
    held: dict[str, int] = {}
    for label, files in found:
        persons = {case.files[name].person for name in files}
        assert len(persons) <= 1, (label, files)
        for person in persons:
            held[person] = held.get(person, 0) + 1
        scans = [case.files[name].acquired for name in files]
        assert len(scans) == len(set(scans)), (label, files)
    # What a person's runs cost together, of the ledger's charge for one subject of the run.
    mu = gdp_mu(epsilon=EPSILON, delta=DELTA)
    for person, n_subjects in held.items():
        true = gdp_epsilon(mu=mu * math.sqrt(n_subjects), delta=DELTA)
        assert true == pytest.approx(EPSILON, rel=1e-6), person


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_layout_is_taken_right_or_asked_about_and_what_is_printed_works(
    case: Case, tmp_path: Path, capsys
) -> None:
    folder = laid_out(case, tmp_path / "data")
    said = asked(folder, capsys)
    # Folders that are sites are read one by one: each may be proved alone, or too small for a rule.
    of_sites = case.outcome == "typed" and len(sites_of(folder)) > 1
    assert said["level"] == LEVELS[case.outcome] or (
        of_sites and said["level"] in ("proved", "choice")
    )
    found, stops = private_run(case, folder)
    if said["level"] == "proved":
        assert "CAPE-E165" not in stops
        check_people(case, found)
        return
    assert stops & {"CAPE-E165", "CAPE-E101", "CAPE-E104"}, "a private run goes on"
    if case.outcome == "refused":
        assert not said["lines"]
        return
    lines: dict[Path, list[list[str]]] = {}
    for line in said["lines"]:
        command, verb, place, *typed = shlex.split(line)
        assert (command, verb) == ("cape", "people")
        lines.setdefault(Path(place), []).append(typed)
    assert set(lines) == set(sites_of(folder).values())
    right = 0
    for together in zip(*lines.values(), strict=True):
        levels = [
            asked(base, capsys, *typed)["level"]
            for base, typed in zip(lines, together, strict=True)
        ]
        assert set(levels) <= {"proved", "refused"}
        found, stops = private_run(case, folder)
        for base in lines:
            (base / "site-policy.toml").unlink(missing_ok=True)
        if set(levels) != {"proved"}:
            continue
        assert "CAPE-E165" not in stops
        try:
            check_people(case, found)
        except AssertionError:
            # Of a choice one line is right; of an inferred layout every one is.
            assert case.outcome == "choice", together
            continue
        right += 1
    assert right, said["lines"]
