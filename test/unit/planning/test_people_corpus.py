"""The corpus of real layouts through the command and discovery: who is a person in a private run.

Files lie on a disk; what `cape people` prints is typed into it as a user would.

Belongs to `cape/planning/people.py`.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from cape.cli import main
from cape.data.bids import entities_of
from cape.data.issues import Findings
from cape.planning.consortium_folder import read_whole, sites_below
from cape.settings.config import Config
from support.sites import discover
from test.support.file_lists import Case, corpus
from test.support.true_epsilon import SIZE, charge, true_epsilons, write_series, write_space

CASES = corpus()
LEVELS = {"right": "proved", "typed": "inferred", "choice": "choice", "refused": "unknown"}
EPSILON, DELTA = 8.0, 1e-5


def laid_out(case: Case, base: Path) -> Path:
    rng = np.random.default_rng(0)
    for path, truth in case.files.items():
        place = base / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if truth.role == "beside":
            place.write_bytes(b"\x5c\x01\0\0")
        else:
            write_series(place, rng)
    return base


def asked(folder: Path, capsys, *typed: str) -> dict[str, object]:
    code = main(["people", str(folder), *typed, "--json"])
    out = capsys.readouterr().out
    return json.loads(out.splitlines()[-1]) if code == 0 else {"level": "refused"}


def settings(case: Case, bids_filter: str = "") -> Config:
    if case.kind == "matrix":
        space = "matrix"
    elif case.kind == "volume":
        space = "mask"
    else:
        dense = any(path.endswith(".dtseries.nii") for path in case.paths)
        space = "grayordinates" if dense else "parcels"
    return Config(
        epsilon=EPSILON, delta=DELTA, feature_space=space, bids_filter=bids_filter,
        min_timepoints=5, n_basis=SIZE, n_features=SIZE if space == "matrix" else 0,
    )  # fmt: skip


Found = dict[Path, dict[str, list[str]]]


def private_run(case: Case, folder: Path, config: Config) -> tuple[Found, set[str]]:
    """Return the people of each site with their files, and the findings that stop a private run."""
    found: Found = {}
    stops: set[str] = set()
    for base in sites_of(folder).values():
        findings = Findings("B")
        front = "" if base == folder else f"{base.name}/"
        people = discover(base, {}, config, findings)
        found[base] = {each.label: [front + run.name for run in each.runs] for each in people}
        assert len(found[base]) == len(people)
        stops |= {finding.code for finding in findings.listing() if finding.severity == "E"}
    return found, stops


def sites_of(folder: Path) -> dict[str, Path]:
    return sites_below(read_whole(folder)) or {"": folder}


def check_people(case: Case, found: Found) -> None:
    """Nobody is two subjects, no subject is two people, and nobody's scan counts as two runs."""
    everybody = {truth.person for truth in case.files.values() if truth.role != "beside"}
    assert sum(map(len, found.values())) == len(everybody)
    for files in (files for people in found.values() for files in people.values()):
        assert len({case.files[name].person for name in files}) <= 1, files
        scans = [case.files[name].acquired for name in files]
        assert len(scans) == len(set(scans)), files


def check_charged(case: Case, folder: Path, found: Found, config: Config) -> None:
    """What the ledgers of the sites charge each person of the list is what was promised."""
    ledgers: dict[Path, dict[str, str]] = {}
    for base, people in found.items():
        write_space(base, config.feature_space)
        ledger = folder.parent / f"home{len(ledgers)}" / "ledger.jsonl"
        charge(base, config, ledger)
        ledgers[ledger] = {name: case.files[files[0]].person for name, files in people.items()}
    files_of: dict[str, list[Path]] = {}
    for path, truth in case.files.items():
        if truth.role != "beside":
            files_of.setdefault(truth.person, []).append(folder / path)
    for person, true in true_epsilons(ledgers, files_of, DELTA).items():
        assert true == pytest.approx(EPSILON, rel=1e-6), person
        assert true <= EPSILON, person


def check_written(folder: Path, config: Config, capsys) -> None:
    """The manifest that is written of a proved layout has the same people with the same files.

    Its column `subject` was empty where the site had just typed who is who.
    """
    for base in sites_of(folder).values():
        table = base / "manifest.csv"
        before = discover(base, {}, config, Findings("B"))
        if asked(base, capsys, "--write", str(table))["level"] != "proved":
            continue
        rows = table.read_text().splitlines()[1:]
        whole = not any(row.endswith(",") for row in rows)
        assert whole == all(each.runs for each in before)
        if whole:
            after = discover(base, {}, config, Findings("B"))
            assert [(p.label, {r.name for r in p.runs}) for p in after] == [
                (p.label, {r.name for r in p.runs}) for p in before
            ]
        table.unlink()


def filter_of_one_version(path: str) -> str:
    """Return what an owner would write to name the version that a file is."""
    entities = entities_of(Path(path).name)
    words = ("space", "res", "desc", "echo", "rec", "part", "reg")
    return "_".join(f"{k}-{v}" for k, v in entities.items() if k in words and v.isalnum())


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
    config = settings(case)
    found, stops = private_run(case, folder, config)
    if said["level"] == "proved":
        assert "CAPE-E165" not in stops
        check_written(folder, config, capsys)
        for chosen in ("", filter_of_one_version(next(iter(case.files)))):
            # Where nobody chooses a version nothing is joined: the owner names one, or a line does.
            config = settings(case, chosen)
            found, _ = private_run(case, folder, config)
            check_people(case, found)
            if all(files for people in found.values() for files in people.values()):
                check_charged(case, folder, found, config)
                return
        config = settings(case)
    else:
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
        found, stops = private_run(case, folder, config)
        if set(levels) == {"proved"}:
            assert "CAPE-E165" not in stops
            try:
                check_people(case, found)
            except AssertionError:
                # Of a choice one line is right; of an inferred layout every one is.
                assert case.outcome == "choice", together
            else:
                right += 1
                if right == 1:
                    check_written(folder, config, capsys)
                    check_charged(case, folder, found, config)
        for base in lines:
            (base / "site-policy.toml").unlink(missing_ok=True)
    assert right, said["lines"]
