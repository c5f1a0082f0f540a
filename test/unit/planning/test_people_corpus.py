"""The corpus of real lists of files, typed as a user would: nobody is another, nobody twice.

Files lie on a disk.  What `cape people` prints is typed into it, until it says who is who.

Belongs to `cape/planning/people.py`.
"""

import csv
import os
import random
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from cape.data.pipeline import inspect_site
from cape.settings.config import Config
from test.support.file_lists import Case, corpus, is_right, lay_out, one_version
from test.support.people import people_said, read, sites_of
from test.support.true_epsilon import SIZE, charge, true_epsilons, write_series, write_space

CASES = corpus()
EPSILON, DELTA = 8.0, 1e-5
MAX_TYPED = 40
STATED = {"--layout", "--write"}


def laid_out(case: Case, base: Path) -> Path:
    rng = np.random.default_rng(0)
    for path, truth in case.files.items():
        place = base / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if truth.role == "beside" or path.endswith(".HEAD"):
            place.write_bytes(b"\x5c\x01\0\0")
        else:
            write_series(place, rng)
    return base


def settings(case: Case, bids_filter: str = "") -> Config:
    if case.kind == "cifti":
        dense = any(path.endswith(".dtseries.nii") for path in case.files)
        space = "grayordinates" if dense else "parcels"
    else:
        space = "matrix" if case.kind == "matrix" else "mask"
    return Config(
        epsilon=EPSILON, delta=DELTA, feature_space=space, bids_filter=bids_filter,
        min_timepoints=5, n_basis=SIZE, n_features=SIZE if space == "matrix" else 0,
    )  # fmt: skip


def check(case: Case, said: dict[str, object], below: str = ".") -> bool:
    """Tell whether all is read; AssertionError if anything is read wrong."""
    assert said["refused"] is None
    return is_right(
        case,
        [
            [os.path.normpath(f"{below}/{run['path']}") for run in person["runs"]]
            for person in said["people"]
            if person["left_out"] is None
        ],
    )


def check_charged(case: Case, folder: Path, config: Config) -> None:
    """What the ledgers of the sites charge each person of the list is what was promised."""
    ledgers: dict[Path, dict[str, str]] = {}
    for base in sites_of(folder).values():
        write_space(base, config.feature_space)
        front = os.path.relpath(base, folder)
        ledger = folder.parent / f"home{len(ledgers)}" / "ledger.jsonl"
        charge(base, config, ledger)
        ledgers[ledger] = {
            person.label: case.files[os.path.normpath(f"{front}/{person.runs[0].name}")].person
            for person in read(base, config)
        }
    files_of: dict[str, list[Path]] = {}
    for path, truth in case.files.items():
        if truth.role != "beside":
            files_of.setdefault(truth.person, []).append(folder / path)
    for person, true in true_epsilons(ledgers, files_of, DELTA).items():
        assert true == pytest.approx(EPSILON, rel=1e-6), person


def check_run_is_refused(folder: Path, config: Config) -> None:
    for base in sites_of(folder).values():
        write_space(base, config.feature_space)
    found = [inspect_site(base, {}, config, site="B") for base in sites_of(folder).values()]
    assert any(inspection.error for inspection in found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_list_is_read_right_or_refused_and_what_is_printed_leads_on(case, tmp_path, capsys):
    folder = laid_out(case, tmp_path / "data")
    said = people_said(folder, capsys)
    if case.outcome == "right":
        assert check(case, said)
        check_charged(case, folder, settings(case))
        return
    assert said["refused"], said["people"]
    check_run_is_refused(folder, settings(case))
    ways = said["refused"]["ways"]
    if case.outcome == "refused":
        assert not ways
        return
    if case.outcome == "filter":
        chosen = way_by_filters(case, folder, ways, capsys)
        check_charged(case, chosen[0], settings(case, chosen[1]))
    check_layout(case, folder, ways, capsys)
    check_manifest(case, folder, ways, capsys)
    if case.outcome == "typed":
        check_charged(case, folder, settings(case))


def way_by_filters(case: Case, folder: Path, ways: list[str], capsys) -> tuple[Path, str]:
    """Type what is printed until nothing is refused; every end is right, and one is whole.

    Return its folder and its filter.
    """
    open_ways, right = [way for way in ways if not STATED & {*way.split()}], []
    for way in open_ways:
        assert len(open_ways) < MAX_TYPED
        command, verb, place, *typed = shlex.split(way)
        assert (command, verb) == ("cape", "people")
        said = people_said(Path(place), capsys, *typed)
        if said["refused"]:
            new = [way for way in said["refused"]["ways"] if not STATED & {*way.split()}]
            assert new, way
            open_ways += [each for each in new if each not in open_ways]
        elif check(case, said, os.path.relpath(place, folder)):
            right.append((Path(place), typed[1] if typed else ""))
    assert right, open_ways
    return right[0]


def check_layout(case: Case, folder: Path, ways: list[str], capsys) -> None:
    (example,) = (way for way in ways if "--layout" in way)
    command, verb, place, option, first = shlex.split(example)
    assert (command, verb, option) == ("cape", "people", "--layout")
    below = os.path.relpath(place, folder)
    named = re.escape(os.path.normpath(f"{below}/{first}")).replace(r"\{subject\}", "[^/_]+")
    assert any(re.fullmatch(named, path) for path in case.files)
    if case.layout:
        typed = case.layout.removeprefix(f"{below}/")
        assert check(case, people_said(Path(place), capsys, option, typed), below)
        (Path(place) / "site-policy.toml").unlink()


def check_manifest(case: Case, folder: Path, ways: list[str], capsys) -> None:
    (printed,) = (way for way in ways if "--write" in way)
    *_, place, option, name = shlex.split(printed)
    below, table = os.path.relpath(place, folder), Path(name)
    people_said(Path(place), capsys, option, name)
    with table.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert not any(row["participant_id"] for row in rows)
    assert people_said(folder, capsys)["refused"], "nobody is filled in"
    kept = one_version(case)
    columns = ["participant_id", "file", "run", "exclude"]
    with table.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, columns, extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            path = os.path.normpath(f"{below}/{row['file']}")
            who, run = case.files[path].person, case.files[path].acquired
            one = kept.pop(path, None) is not None
            writer.writerow(row | {"participant_id": who, "run": run, "exclude": int(not one)})
    assert not kept, "each file has a row"
    assert check(case, people_said(Path(place), capsys), below)


def test_lists_with_files_missing_are_never_read_wrong(tmp_path) -> None:
    r, n = random.Random(5), 0
    for case in CASES:
        for k in range(4):
            some = [path for path in case.files if r.random() < 0.6]
            folder = lay_out(tmp_path / case.name / str(k), *some)
            people = read(folder, settings(case)) if some else None
            if people is not None:
                n += 1
                is_right(case, [[run.name for run in person.runs] for person in people])
    assert n > 20


def test_the_patterns_of_the_how_to_page_are_those_that_are_typed_here() -> None:
    page = (Path(__file__).parents[3] / "docs" / "howto-inputs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| `([^`|]*\{subject\}[^`|]*)` \|$", page, re.MULTILINE)
    assert len(rows) >= 10
    assert {pattern for _, pattern in rows} <= {case.layout for case in CASES}
    said = " ".join(name for name, _ in rows)
    for name in ("HCP", "UK Biobank", "ABIDE", "ADHD-200", "DPABI", "C-PAC", "SPM", "CONN"):
        assert name in said
