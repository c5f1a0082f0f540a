"""Outcomes of all people whom a site lists: from images, by public maps.

Belongs to `cape/data/groups.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cape.algorithms.person_outcomes import courses, edges, outcome_names, outcomes_of_person
from cape.data import pipeline
from cape.data.groups import measured, repetition_times
from cape.data.subjects import subject_matrix
from cape.data.templates import with_templates
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.settings.comparison import Measure, MeasureKind
from cape.settings.config import Config, Recipe

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


def test_who_lacks_an_outcome_adds_zeros_and_stays(study) -> None:
    measure = Measure(kind="fnc", networks=NETWORKS)
    S = RNG.standard_normal((3, 50)).astype(np.float32)
    constant = S.copy()
    constant[1] = 0.0
    people = [("1", S), ("2", constant), ("3", S[:, :0])]
    found = list(measured(people, {}, measure))
    assert [(label, u.shape) for label, u in found] == [("1", (3, 1)), ("2", (3, 0)), ("3", (3, 0))]
    np.testing.assert_allclose(found[0][1][:, 0], edges(S.astype(float)), rtol=1e-6)


@pytest.mark.parametrize("kind", ["fnc", "domains", "power", "falff", "loadings"])
def test_nobody_s_courses_end_a_run_or_warn(kind: MeasureKind) -> None:
    """A header with an infinite repetition time divided by zero, which ended its site for all."""
    measure = Measure(kind=kind, networks=NETWORKS, domains=("x", "x", "y"))
    S = RNG.standard_normal((3, 50)).astype(np.float32)
    huge = np.full_like(S, 3e38)
    people = [("1", S), ("2", np.where(S > 0, np.inf, S)), ("3", huge), ("4", S[:, :1]), ("5", S)]
    trs = dict.fromkeys("1234", 2.0) | {"5": np.inf}
    shapes = [u.shape for _, u in measured(people, trs, measure)]
    n, needs_time = len(outcome_names(measure)), kind in ("power", "falff")
    assert shapes[:4] == [(n, 1), (n, 0), (n, 0), (n, 0)]
    assert shapes[4] == (n, 0 if needs_time else 1)


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
    np.testing.assert_allclose(
        people[0][1], courses(X, maps / maps.std(axis=0)), rtol=1e-3, atol=1e-5
    )
    trs = repetition_times(site.subjects, 0.0)
    assert set(trs.values()) == {2.0}
    found = measured(people, trs, Measure(kind="falff", networks=NETWORKS))
    assert [bool(u.size) for _, u in found] == [True, False, True, True, True]


def test_the_repetition_time_of_a_person_is_known_if_all_runs_have_it(study) -> None:
    site, _ = pipeline.load_site(study, {}, CONFIG, site="A")
    one = site.subjects[0]
    said = [
        replace(one, label=str(k), trs=trs)
        for k, trs in enumerate([(2.0, 2.0), (0.0,), (2.0, 1.0)])
    ]
    assert repetition_times(said, 1.5) == {"0": 2.0, "1": 1.5, "2": 0.0}
