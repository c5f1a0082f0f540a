"""The computations of one release through the whole protocol, on data whose maps are known.

Short forms of bench/separations.py (256 subjects, three seeds): the figures there are the ones to
quote.  Bounds are those of the acceptance.
"""

import argparse
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import separations as bench


def arguments(**changed: object) -> argparse.Namespace:
    given = {"subjects": 96, "sites": 4, "g": 100.0, "components": 20, "networks": 6, "r": 0.6}
    return argparse.Namespace(**{**given, **changed})


def test_template_maps_at_g_100_beat_the_templates_and_the_figure_without_data() -> None:
    row = bench.template(arguments(), 611)
    assert row["raw_templates"] == pytest.approx(0.6, abs=1e-6)
    assert row["maps"] > row["raw_templates"] + 0.05
    assert row["maps"] > row["without_data"] + 0.05


def test_a_folder_with_templates_runs_and_its_page_says_what_templates_prove(tmp_path) -> None:
    from cape.cli import app

    def cape(*given: str) -> None:
        done = CliRunner().invoke(app, list(given))
        assert done.exit_code == 0, done.output

    plan, out = str(tmp_path / "plan"), tmp_path / "out"
    cape("synth", plan, "--preset", "realistic", "--subjects", "9", "--sites", "3",
         "--timepoints", "60", "--networks", "3", "--templates", "0.6", "--quiet")  # fmt: skip
    common = ("--delta", "1e-5", "--epsilon", "60", "--set", "basis=kernel", "--set", "n_basis=20")
    cape("simulate", plan, "--out", str(out), *common, "--set", "computation=capedualreg",
         "--quiet")  # fmt: skip
    folder = out / "consortium"
    results = json.loads((folder / "results.json").read_text())
    assert len(results["separation"]["template"]) == 3
    page = (folder / "index.html").read_text()
    for words in (
        "Likeness to the templates is no evidence",
        "smooth noise",
        "No new network is discovered",
    ):
        assert words in page
    maps, evidence, without = (
        np.loadtxt(folder / f"{name}.csv", delimiter=",", skiprows=1)
        for name in ("group_maps", "template_evidence", "template_without_data")
    )
    assert maps.shape == evidence.shape == without.shape == (900, 3)
