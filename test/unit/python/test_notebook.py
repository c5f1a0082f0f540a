"""What notebooks show: sentence, maps and claims of a result, a plan, a picture in any kernel."""

import dataclasses
import sys

import numpy as np
import pytest

import cape
from cape.counting import CountedPeople
from cape.errors import ConfigError
from cape.protocol.messages import FeatureSpace
from cape.python.api import _result
from support import report_example as example

ALL = CountedPeople(listed=9, counted=9, why={})


def test_a_result_shows_its_sentence_maps_and_claims() -> None:
    pytest.importorskip("matplotlib")
    made = example.outcome(FeatureSpace.of_matrix(40))
    shown = _result(made, None, ALL)._repr_html_()
    assert shown.startswith("<p><b>")
    assert "epsilon" in shown
    assert "data:image/png;base64," in shown
    assert "<td>C01</td>" in shown
    assert "NOT PRIVATE" in _result(example.outcome(private=False), None, ALL)._repr_html_()


def test_without_pictures_the_table_is_there(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    shown = _result(example.outcome(FeatureSpace.of_matrix(40)), None, ALL)._repr_html_()
    assert "<img" not in shown
    assert "<td>C03</td>" in shown


def test_what_needs_a_package_that_is_not_there_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    result = _result(example.outcome(FeatureSpace.of_matrix(40)), None, ALL)
    with pytest.raises(
        ConfigError, match=r"E015 plot needs the package matplotlib.*coinstac-cape\[notebook\]"
    ):
        result.plot()
    for ask in (result.to_dataframe, cape.Comparison(runs=()).to_dataframe):
        with pytest.raises(ConfigError, match=r"E015 to_dataframe needs the package pandas"):
            ask()


def test_a_table_is_shown_as_one() -> None:
    rng = np.random.default_rng(1)
    sites = {s: [rng.random((120, 3)) for _ in range(4)] for s in "abc"}
    given = {"low": 0.0, "high": 1.0, "n_bins": 3}
    result = cape.Consortium(sites).run(
        epsilon=8.0, computation="capemean", settings=given, seed=1
    )  # fmt: skip
    assert "<table><thead>" in result._repr_html_()


def test_a_figure_is_a_picture_in_a_kernel_that_has_imported_nothing() -> None:
    # Without pyplot notebooks wrote <Figure size 640x480> in place of the maps.
    pytest.importorskip("matplotlib")
    figure = _result(example.outcome(FeatureSpace.of_matrix(40)), None, ALL).plot()
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_plan_is_said_in_a_few_lines_and_has_a_table() -> None:
    plan = cape.budget(subjects=256, sites=4, epsilon=1.0)
    assert repr(plan) == (
        "<PlannedRun 256 people at 4 sites, 12 components of images, epsilon 1: perhaps>"
    )  # fmt: skip
    assert 2 < len(str(plan).splitlines()) < 8
    assert "<td>perhaps</td>" in plan._repr_html_()
    free = cape.budget(subjects=256, sites=4, epsilon=1.0, settings={"private": False})
    assert "no noise" in repr(free)
    assert "<table>" not in free._repr_html_()


def test_the_estimator_shows_its_result_once_it_has_one() -> None:
    pytest.importorskip("sklearn")
    model = cape.JointICA(3)
    assert "JointICA" in model._repr_mimebundle_()["text/html"]
    model.result_ = dataclasses.replace(
        _result(example.outcome(FeatureSpace.of_matrix(40)), None, ALL)
    )
    assert "<td>C01</td>" in model._repr_mimebundle_()["text/html"]
