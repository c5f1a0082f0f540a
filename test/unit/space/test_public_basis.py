"""``basis = "templates"``: the owner's public maps are the basis in which everything happens."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cape.algorithms.scores import match_maps
from cape.cli import main
from cape.computations import capedjica, load
from cape.data.templates import with_templates
from cape.errors import CapeError, ConfigError
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.protocol.messages import FeatureSpace
from cape.settings.resolved import resolve
from cape.space.public_basis import public_basis, widest_basis
from support.simulation import simulate

SETTINGS: dict[str, object] = {
    "epsilon": 8.0, "delta": 1e-5, "feature_space": "matrix", "n_components": 3,
    "min_timepoints": 30, "basis": "templates", "orientation": "feature_by_time",
}  # fmt: skip
D, K = 20, 6


def config(**changes: object):
    return load("capedjica").config.from_input({**SETTINGS, **changes})


def space(maps: np.ndarray) -> FeatureSpace:
    return FeatureSpace.of_matrix(len(maps)).with_templates(maps)


def test_the_basis_spans_the_templates_is_orthonormal_and_nests():
    maps = np.random.default_rng(0).standard_normal((D, K)) * 40
    B = public_basis(resolve(config()), space(maps), K)
    assert B is not None
    np.testing.assert_allclose(B.T @ B, np.eye(K), atol=1e-12)
    np.testing.assert_allclose(B @ (B.T @ maps), maps, atol=1e-4)
    np.testing.assert_allclose(
        public_basis(resolve(config()), space(maps), 4), B[:, :4], atol=1e-12
    )
    assert widest_basis(resolve(config()), space(maps)) == K


def test_maps_that_depend_on_each_other_or_are_too_few_are_refused():
    maps = np.random.default_rng(0).standard_normal((D, K))
    with pytest.raises(ConfigError, match="E011"):
        public_basis(resolve(config()), space(maps[:, [0, 0]]), 2)
    with pytest.raises(ConfigError, match="basis=templates"):
        load("capedualreg").config.from_input({**SETTINGS, "n_components": K})
    with pytest.raises(ConfigError, match="allowed 2 to 2; the public basis has 2 directions"):
        capedjica.PLANNER.basis_size(config(), space(maps[:, :2]), 100.0)
    assert capedjica.PLANNER.basis_size(config(), space(maps), 100.0) == K


@pytest.fixture
def study(tmp_path) -> Path:
    folder = tmp_path / "study"
    write_consortium(
        folder, Request(preset="paper", site_sizes=(6, 5, 4), n_timepoints=60, n_networks=3)
    )
    rng = np.random.default_rng(0)
    with np.load(folder / "truth.npz") as truth:
        maps = truth["A"] / np.linalg.norm(truth["A"], axis=0)
    mixed = np.concatenate([maps, 0.02 * rng.standard_normal((len(maps), 2))], axis=1)
    for site in ("local0", "local1", "local2"):
        np.save(folder / site / "templates.npy", mixed @ rng_rotation())
    return folder


def rng_rotation() -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(3).standard_normal((5, 5)))[0]


@pytest.mark.usefixtures("no_pages")
def test_a_run_in_the_templates_finds_maps_inside_their_span(study, tmp_path):
    settings = {"basis": "templates", "n_basis": 0, "image_shape": "", "private": False}
    out = simulate(study, out=tmp_path / "out", settings=settings)
    with np.load(study / "truth.npz") as truth, np.load(out / "unmixing.npz") as found:
        assert match_maps(found["A"], truth["A"]).mean > 0.95
        B = public_basis(
            resolve(config()),
            with_templates(FeatureSpace.of_matrix(900), study / "local0", site="B"),
            5,
        )
        assert B is not None
        np.testing.assert_allclose(B @ (B.T @ found["A"]), found["A"], atol=1e-6)


def test_other_templates_at_one_site_are_found_by_validate_and_by_the_run(study, tmp_path, typed):
    templates = study / "local1" / "templates.npy"
    np.save(templates, np.load(templates) * 1.01)
    given = ["--set", "basis=templates", "--set", "n_basis=0", "--set", "image_shape="]
    text = typed("validate", str(study), *given, code=1).out
    assert "NOT READY: 1 error" in text
    with pytest.raises(CapeError) as caught:
        simulate(
            study, out=tmp_path / "out", settings={
                "private": False, "basis": "templates", "n_basis": 0, "image_shape": "",
            },
        )  # fmt: skip
    assert str(caught.value) in text
    templates.unlink()
    text = typed("validate", str(study), *given, code=1).out
    assert "CAPE-E280" in text
    assert "Fix: Put the file that the owner sent into the site's folder." in text


def test_validate_needs_no_template_where_none_is_asked(study):
    assert main(["validate", str(study), "--quiet"]) == 0
    assert replace(config(), basis="none").basis == "none"


def test_people_are_read_as_time_courses_where_a_computation_wants_them() -> None:
    """The first step of dual regression is a basis: all that reads data gives courses then."""
    from cape.algorithms.person_outcomes import courses
    from cape.space.public_basis import project

    maps = np.random.default_rng(0).standard_normal((D, K)) + 3.0
    how = replace(resolve(config()), basis="courses")
    B = public_basis(how, space(maps), widest_basis(how, space(maps)))
    X = np.random.default_rng(1).standard_normal((D, 9)).astype(np.float32)
    expected = courses(X, space(maps).templates())
    np.testing.assert_allclose(project(X, B), expected, rtol=1e-4, atol=1e-6)


def test_courses_of_regions_that_cover_everything_are_their_means() -> None:
    """They were regressed with a constant, on which they depend: every course was one rounding
    error, every correlation 1, and the comparison said "no difference".
    """
    from cape.space.public_basis import project

    how = replace(resolve(config()), basis="courses")
    regions = np.eye(K)[np.arange(D) % K]
    for scale in (1.0, 7.98, 1e-3):
        B = public_basis(how, space(scale * regions), widest_basis(how, space(regions)))
        X = np.random.default_rng(1).standard_normal((D, 9)).astype(np.float32)
        means = [X[np.arange(D) % K == k].mean(axis=0) for k in range(K)]
        np.testing.assert_allclose(project(X, B), means, rtol=1e-4, atol=1e-6)
