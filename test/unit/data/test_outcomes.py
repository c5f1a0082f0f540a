"""Outcomes of all people whom a site lists: from images, by public maps.

Belongs to `cape/data/groups.py`.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.algorithms.person_outcomes import courses, edges, outcomes_of_person
from cape.data import pipeline
from cape.data.checks import Subject
from cape.data.cleaning import UNREAD
from cape.data.groups import Compared, of_images, short_session
from cape.data.runs import SiteRun
from cape.data.subjects import subject_matrix
from cape.data.templates import with_templates
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.settings.config import Config, Recipe
from cape.settings.measures import UNIT_OF_Z, Measure, MeasureKind, outcome_names
from cape.settings.question import parse_question
from support.asked import rows_of, source_of

RNG = np.random.default_rng(4)
NETWORKS = ("a", "b", "c")


class OfCourses(Config):
    """A computation that reads people as the courses of public maps."""

    def recipe(self) -> Recipe:
        return Recipe(templates=True, courses=True, widest=50, max_components=0)


CONFIG = OfCourses(epsilon=1.0, delta=1e-5, mask="MNI152-10mm", min_timepoints=20)


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("study") / "study"
    request = Request(n_sites=1, n_subjects=5, n_timepoints=40, n_networks=3, templates=1.0)
    write_consortium(out, request)
    return out / "local0"


@pytest.mark.parametrize(
    ("kind", "n"), [("fnc", 3), ("domains", 2), ("power", 6), ("falff", 3), ("loadings", 3)]
)
def test_names_are_known_before_anybody_is_measured(kind: MeasureKind, n: int) -> None:
    measure = Measure(kind=kind, networks=NETWORKS, domains=("x", "x", "y"))
    S = RNG.standard_normal((3, 200))
    assert len(outcome_names(measure)) == n == len(set(outcome_names(measure)))
    found = outcomes_of_person(measure, S, 2.0)
    assert found.shape == (n,)
    assert np.isfinite(found).all()
    assert np.isnan(outcomes_of_person(measure, S[:, :0], 2.0)).all()
    if kind in ("power", "falff"):
        assert np.isnan(outcomes_of_person(measure, S, 0.0)).all()


def subject_of(label: str, *runs: tuple[str, float, int, tuple[int, ...]], **facts) -> Subject:
    """A person with runs of (session, tr, stored volumes, those left out)."""
    starts = np.cumsum([0, *(n for _, _, n, _ in runs)]).tolist()
    return Subject(
        label=label, site="A", digests=(), n_features=3, quality=UNREAD, rank=3, grid="ok",
        runs=tuple(SiteRun(path=Path(s), name=s, session=s) for s, *_ in runs),
        n_timepoints=sum(n - len(out) for _, _, n, out in runs),
        trs=tuple(tr for _, tr, _, _ in runs), n_volumes=tuple(n for _, _, n, _ in runs),
        left_out=tuple(a + i for a, (*_, out) in zip(starts[:-1], runs, strict=True) for i in out),
        **facts,
    )  # fmt: skip


def measured(
    subjects: Sequence[Subject],
    courses: Sequence[np.ndarray],
    kind: MeasureKind = "fnc",
    **asked: str,
) -> Compared:
    """People with outcomes of their courses, in natural units where the middle of these is 0."""
    settings = {"variables": "dx a/b", "formula": "dx", "outcomes": kind, **asked}
    question = parse_question(networks="a (x), b (x), c (y)", **settings)
    labels = tuple(subject.label for subject in subjects)
    nothing = np.full((len(labels), len(question.outcomes)), np.nan)
    people = Compared(labels=labels, codes={"dx": np.zeros(len(labels))}, u=nothing)
    assert question.measure is not None
    pairs = zip(labels, courses, strict=True)
    return of_images(people, question, question.measure, subjects, pairs, CONFIG)


def test_who_lacks_an_outcome_lacks_that_one_alone() -> None:
    S = RNG.standard_normal((3, 50)).astype(np.float32)
    constant = S.copy()
    constant[2] = 0.0
    people = [subject_of(str(m), ("", 2.0, 50, ())) for m in range(3)]
    u = measured(people, [S, constant, S[:, :0]]).u
    np.testing.assert_allclose(u[0] * UNIT_OF_Z, edges(S.astype(float)), rtol=1e-12)
    assert np.isnan(u[1]).tolist() == [False, True, True]
    assert np.isnan(u[2]).all()


@pytest.mark.parametrize("kind", ["fnc", "domains", "power", "falff", "loadings"])
def test_nobody_s_courses_end_a_run_or_warn(kind: MeasureKind) -> None:
    """A header with an infinite repetition time divided by zero, which ended its site for all."""
    S = RNG.standard_normal((3, 50)).astype(np.float32)
    huge = np.full_like(S, 3e38)
    courses = [S, np.where(S > 0, np.inf, S), huge, S[:, :1], S]
    people = [subject_of(str(m), ("", 2.0, s.shape[1], ())) for m, s in enumerate(courses)]
    people[4] = replace(people[4], trs=(np.inf,))
    u = measured(people, courses, kind).u
    assert np.isfinite(u[0]).all()
    assert np.isnan(u[1:4]).all()
    assert np.isnan(u[4]).all() == (kind in ("power", "falff"))


def test_sessions_are_compared_within_a_person() -> None:
    """Volumes that were left out are in no session; one that is too short has no outcome."""
    S = RNG.standard_normal((3, 95)).astype(np.float32)
    runs = (
        ("1", 2.0, 30, (0, 1)),
        ("2", 2.0, 42, (5, 6)),
        ("1", 2.0, 30, (29,)),
        ("3", 2.0, 9, ()),
    )
    short = subject_of("short", ("1", 2.0, 90, ()), ("2", 2.0, 5, ()))
    one = subject_of("one", ("2", 2.0, 95, ()))
    S = RNG.standard_normal((3, 28 + 40 + 29 + 9)).astype(np.float32)
    people = [subject_of("whole", *runs), short, one]
    u = measured(people, [S, S[:, :95], S[:, :95]], change="ses-1, ses-02").u
    first = np.concatenate([S[:, :28], S[:, 68:97]], axis=1).astype(float)
    change = edges(S[:, 28:68].astype(float)) - edges(first)
    np.testing.assert_allclose(u[0] * UNIT_OF_Z, change, rtol=1e-12)
    assert np.isnan(u[1:]).all()
    # A run of 92 volumes was told as "constant, or the repetition time".
    question = parse_question(
        variables="dx a/b", formula="dx", outcomes="fnc", networks="a, b", change="ses-1, ses-02"
    )
    said = [short_session(person, question, CONFIG) for person in people]
    assert said == ["", "ses-02 has 5", "ses-1 has none"]


def test_the_repetition_time_is_known_if_all_runs_have_it() -> None:
    S = RNG.standard_normal((3, 100)).astype(np.float32)
    trs = ((2.0, 2.0), (0.0, 0.0), (2.0, 1.0))
    people = [
        subject_of(str(m), ("", first, 50, ()), ("", second, 50, ()))
        for m, (first, second) in enumerate(trs)
    ]
    u = measured(people, [S] * 3, "falff").u
    assert np.isfinite(u).all(axis=1).tolist() == [True, False, False]


def test_motion_and_volumes_are_those_of_the_runs() -> None:
    """A table's column of that name is not read: motion follows from the runs that are used."""
    S = RNG.standard_normal((3, 50)).astype(np.float32)
    runs = ("", 2.0, 50, ())
    people = [subject_of("1", runs, mean_fd=0.25), subject_of("2", runs)]
    asked = {"variables": "mean_FD 0:.5, n_volumes 0:100", "formula": "mean_fd + n_volumes"}
    codes = measured(people, [S, S], **asked).codes
    np.testing.assert_array_equal(codes["mean_FD"], [0.0, np.nan])
    np.testing.assert_array_equal(codes["n_volumes"], [0.0, 0.0])


def test_images_become_courses_on_the_road_of_all_images(study) -> None:
    """Discovery, cleaning and checks are those of the maps; a broken file fails one person."""
    broken = sorted(study.glob("sub-*"))[1]
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2])
    try:
        site, people = pipeline.load_site(study, {}, CONFIG, site="A")
    finally:
        broken.write_bytes(whole)
    assert [S.shape[0] for _, S in people] == [3] * 5
    assert people[1][1].shape == (3, 0)
    maps = with_templates(site.space, study, site="A").templates()
    X = subject_matrix(site.subjects[0], site.space, CONFIG)
    np.testing.assert_allclose(people[0][1], courses(X, maps), rtol=1e-3, atol=1e-5)


def test_people_of_images_are_rows_that_are_read_again_alike(study, tmp_path) -> None:
    """Of two sessions a person has differences; who has one session has none."""
    volumes = {}
    for k, path in enumerate(sorted(study.glob("sub-*.nii.gz"))):
        label, start = path.name.partition("_")[0], nib.load(path)
        folder = tmp_path / label
        folder.mkdir()
        volumes[label] = start.shape[3] * (1 + bool(k))
        for session in ("1", "2") if k else ("1",):
            name = f"{label}_ses-{session}_task-rest_bold.nii.gz"
            values = np.asarray(start.dataobj)[..., :: 1 if session == "1" else -1]
            nib.save(nib.Nifti1Image(values, start.affine, start.header), folder / name)
    shutil.copy(study / "templates.nii.gz", tmp_path)
    labels = sorted(path.name for path in tmp_path.glob("sub-*"))
    table = "participant_id\tdx\tN_Volumes\n" + "".join(f"{label}\ta\t7\n" for label in labels)
    (tmp_path / "participants.tsv").write_text(table)
    chosen = {
        "variables": "dx a/b, n_volumes 0:200", "formula": "dx + n_volumes", "public": "dx",
        "outcomes": "fnc", "networks": "a, b, c", "mask": "MNI152-10mm", "min_timepoints": 20,
        "bids_filter": "task-rest",
    }  # fmt: skip
    source = source_of(tmp_path, **chosen)
    rows = {label: row[:, 0] for label, row in source.reduced(3)}
    assert sorted(rows) == labels
    assert {row.shape for row in rows.values()} == {(3 + 1 + 2,)}
    assert source.space.n_templates == 3
    assert np.isfinite(list(rows.values())).all()
    used = {label: 50 * row[-1] + 100 for label, row in rows.items()}
    assert used == pytest.approx(volumes)
    assert "n_volumes of participants.tsv" in str(source._data().findings)
    again = rows_of(tmp_path, **chosen)
    np.testing.assert_array_equal(list(again.values()), list(rows.values()))
    change = rows_of(tmp_path, **chosen, change="1, 2")
    assert np.isnan(change[labels[0]][:3]).all()
    # Connectivity is that of the same volumes in reversed order.
    np.testing.assert_allclose([change[label][:3] for label in labels[1:]], 0.0, atol=1e-3)
