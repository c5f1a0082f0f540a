"""Whose files are, by lists of real producers and random ones: nobody is taken for another."""

from __future__ import annotations

import random
import re

import pytest
from cape.data.layout.reading import read_names
from cape.data.layout.words import producers

from test.support.file_lists import Case, Truth, corpus, random_layout, said, wrong

CASES = corpus()
TAKEN = [case for case in CASES if case.outcome != "refused"]
OUTCOMES = {"proved": "right", "inferred": "typed", "choice": "choice", "unknown": "refused"}


def named(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_list_is_read_right_asked_about_or_refused(case: Case) -> None:
    reading = read_names(case.paths, case.kind)
    assert OUTCOMES[reading.level] == case.outcome, (reading.why, reading.lines)
    if reading.level in ("proved", "inferred"):
        taken = {image.path for image in reading.images}
        assert taken == {p for p, truth in case.files.items() if truth.role != "beside"}
        assert not wrong(reading.images, case.files)
    if reading.level == "unknown":
        assert reading.why
        assert not reading.lines


@pytest.mark.parametrize("case", [c for c in TAKEN if c.outcome != "right"], ids=named)
def test_a_printed_line_that_is_typed_gives_the_right_people(case: Case) -> None:
    reading = read_names(case.paths, case.kind)
    assert 1 <= len(reading.lines) <= 6
    typed = [read_names(case.paths, case.kind, layout=said(line)) for line in reading.lines]
    right = [each.level == "proved" and not wrong(each.images, case.files) for each in typed]
    # Of an inferred layout every line is right, each with another version; of a choice one is.
    assert all(right) if case.outcome == "typed" else any(right), reading.lines
    everybody = {truth.person for truth in case.files.values()}
    assert len(typed[right.index(True)].people) == len(everybody)


def test_most_lists_are_taken_without_a_question_or_with_one_typed_line() -> None:
    plain = [case for case in CASES if not case.trap]
    taken = [case for case in plain if case.outcome != "refused"]
    assert len(taken) >= 0.95 * len(plain)
    assert len(CASES) >= 90


def test_traps_are_never_taken_in_silence() -> None:
    # A BIDS label is whole by folder and name together, whatever letters it has.
    assert {c.name for c in CASES if c.trap and c.outcome == "right"} == {"nda-guid-underscore"}


def test_every_row_of_the_table_has_a_list() -> None:
    seen = {read_names(case.paths, case.kind).evidence for case in CASES}
    assert {row.name for row in producers()} <= seen


def judged(files: dict[str, Truth]) -> str:
    reading = read_names(sorted(files), "volume")
    if reading.level in ("choice", "unknown"):
        return reading.level
    error = wrong(reading.images, files)
    # Words that nobody knows keep runs apart as versions, which are never joined.
    return error if not error.startswith("runs") or joined(reading.images, files) else "apart"


def joined(images, files) -> bool:
    """Whether files of one acquisition count as two runs."""
    runs: dict[object, set[object]] = {}
    for image in images:
        if not image.whole:
            runs.setdefault(files[image.path].acquired, set()).add(image.acquired)
    return any(len(each) > 1 for each in runs.values())


def test_random_layouts_never_take_a_person_for_another() -> None:
    r = random.Random(20261124)
    verdicts = [judged(random_layout(r)) for _ in range(500)]
    assert {v for v in verdicts if v not in ("", "apart", "choice", "unknown")} == set()
    assert verdicts.count("") > 150


def test_lists_with_files_missing_never_take_a_person_for_another() -> None:
    r = random.Random(5)
    n = 0
    for case in CASES:
        for _ in range(5):
            paths = [path for path in case.paths if r.random() < 0.6]
            reading = read_names(paths, case.kind)
            if reading.level in ("proved", "inferred"):
                n += 1
                error = wrong(reading.images, case.files)
                assert not error.startswith("people"), (case.name, error, paths)
                assert not joined(reading.images, case.files), (case.name, paths)
    assert n > 150


def test_labels_that_look_alike_are_asked_about() -> None:
    def level(*names: str) -> str:
        return read_names(
            [f"sub-{n}/func/sub-{n}_task-rest_bold.nii.gz" for n in names], "volume"
        ).level

    assert level("01", "02", "03") == "proved"
    assert level("01", "1", "02") == "unknown"
    assert level("P01", "p01") == "unknown"
    assert level("01pre", "01post", "02pre") == "choice"
    assert level("101a", "101b") == "choice"
    same = read_names(
        [f"sub-{n}/func/sub-{n}_task-rest_bold.nii.gz" for n in ("101a", "101b")],
        "volume",
        layout=("--as-named",),
    )
    assert same.level == "proved"
    assert len(same.people) == 2


def test_the_sites_own_list_of_people_proves_who_is_who() -> None:
    paths = [f"{p}_{e}.nii.gz" for p in ("P001", "P002", "P003") for e in ("pre", "post")]
    assert read_names(paths, "volume").level == "inferred"
    listed = read_names(paths, "volume", names=("sub-P001", "P002", "P003", "P004"))
    assert listed.level == "proved"
    assert len(listed.people) == 3
    assert {image.run["session"] for image in listed.images} == {"pre", "post"}
    # Names of two letters or three digits could be numbers of runs.
    assert (
        read_names([f"{i:03d}.nii.gz" for i in range(3)], "volume", names=("001", "002")).level
        != "proved"
    )


def test_a_way_to_read_names_says_how_many_people_it_finds() -> None:
    """001 at two sites are two people; the line said "5 people" of thirteen."""
    r, told = random.Random(9), 0
    lists = [[f"{c}/func/{k}_rest.nii.gz" for c in ("Bern", "Oslo") for k in ("001", "002", "003")]]
    lists += [case.paths for case in CASES if case.kind == "volume"]
    lists += [list(random_layout(r)) for _ in range(100)]
    for paths in lists:
        for line in read_names(paths, "volume").lines:
            typed = read_names(paths, "volume", layout=said(line))
            if typed.level == "proved" and (n := re.match(r"\d+(?= people)", line.says)):
                assert int(n[0]) == len(typed.people), (line, typed.people)
                told += 1
    assert told > 100


SURNAMES = ("power_{}.nii", "Gordon{}.nii.gz", "shen_{}_rest.nii", "Yeo_{}.nii", "atlas_{}.nii.gz")


@pytest.mark.parametrize("form", SURNAMES)
def test_people_who_are_called_like_an_atlas_are_people(form: str) -> None:
    """Files of power_001 to power_300 were atlases, all but without a word."""
    numbers = [f"{n:03d}" for n in (1, 2, 100, 200, 264, 268, 333)]
    reading = read_names([form.format(n) for n in numbers], "volume")
    assert len(reading.images) == len(numbers)
    assert not reading.atlases


def test_labels_of_bids_that_are_names_of_atlases_are_people() -> None:
    labels = ("Gordon333", "AAL", "power264", "Yeo2011", "Schaefer400", "01")
    reading = read_names([f"sub-{x}/func/sub-{x}_task-rest_bold.nii" for x in labels], "volume")
    assert {image.subject for image in reading.images} == set(labels)
    assert not reading.atlases


def test_a_volume_that_is_taken_for_an_atlas_is_named() -> None:
    people = [f"P{n:03d}.nii" for n in range(1, 6)]
    atlases = ["AAL.nii", "Power_264.nii", "Schaefer2018_400Parcels_7Networks_order_2mm.nii.gz"]
    reading = read_names([*people, *atlases, "atlas.nii", "x_dseg.nii"], "volume")
    assert [image.path for image in reading.images] == people
    assert list(reading.atlases) == atlases
    assert list(read_names(atlases, "volume").atlases) == atlases
    listed = read_names(atlases, "volume", listed=True)
    assert not listed.atlases
