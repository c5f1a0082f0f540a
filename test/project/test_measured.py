"""What pages and the forecast say was measured is what bench/measured holds."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import comparison
import reliability
import utility
import variants
from cape.forecast.temporal import SYNTHETIC, sure_g
from cape.lab.synthetic.generators import PRESETS
from presets import VARIANTS, study_of

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / "docs" / "results.md").read_text(encoding="utf-8")


def rows_of(name: str) -> list[dict[str, Any]]:
    text = (TOP / "bench" / "measured" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


ROWS = rows_of("variants.jsonl")
THIS = [row for row in ROWS if row["tree"] == "this"]


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("variants", variants.table(ROWS)),
        ("claims", reliability.reliability(THIS)),
        ("verdicts", reliability.summary(THIS)),
    ],
)
def test_the_tables_of_the_page_are_those_of_the_rows(name: str, made: str) -> None:
    shown = PAGE.split(f"<!-- {name}: ")[1].split("-->\n")[1].split(f"<!-- end of {name}")[0]
    assert shown.strip() == made


def test_the_tables_of_comparisons_are_those_of_the_rows() -> None:
    page = (TOP / "docs" / "group-comparison.md").read_text(encoding="utf-8")
    shown = page.split("<!-- comparison: ")[1].split("-->\n")[1].split("<!-- end of comparison")[0]
    assert shown.strip() == comparison.table(rows_of("comparison.jsonl"))


def test_the_table_of_sizes_and_budgets_is_that_of_the_rows() -> None:
    page = (TOP / "docs" / "choosing.md").read_text(encoding="utf-8")
    shown = page.split("<!-- utility: ")[1].split("-->\n")[1].split("<!-- end of utility")[0]
    assert shown.strip() == utility.table(rows_of("utility.jsonl"))


def test_every_preset_was_measured_and_is_described() -> None:
    every = {*PRESETS, *VARIANTS, *variants.NULL}
    assert {row["preset"] for row in THIS} == every
    for name in every:
        assert f"`{name}`" in PAGE, name


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_differs_from_realistic_and_comes_in_blocks_of_any_size(name: str) -> None:
    sizes = {"n_subjects": 7, "seed": 77, "n_components": 6, "n_timepoints": 60, "n_basis": 25}
    made, plain = study_of(name, **sizes), study_of("realistic", **sizes)
    whole = made.subjects()
    assert whole.dtype == np.float32
    np.testing.assert_array_equal(np.concatenate(list(made.blocks(3))), whole)
    assert [X.shape for X in made.each()] == [(25, n) for n in made.lengths]
    assert whole.shape != (7, 25, 60) or not np.allclose(whole, plain.subjects())
    if VARIANTS[name].of_subjects:  # the sources and the common maps are the same
        np.testing.assert_array_equal(made.S, plain.S)
        np.testing.assert_array_equal(made.A, plain.A)


def good(row) -> bool:
    return row["q"] is not None and row["q"] < 0.1


def test_the_forecast_says_what_was_measured() -> None:
    separable = [row for row in THIS if row["preset"] not in reliability.NOTHING]
    sure = [row for row in separable if row["g"] >= 0.97 * sure_g(20)]
    assert all(map(good, sure))
    assert f"all {len(sure)} runs" in SYNTHETIC["yes"]
    doubtful = [row for row in separable if row["g"] < 0.97 * sure_g(20)]
    focal = [row for row in doubtful if row["preset"] != "fields"]
    smooth = [row for row in doubtful if row["preset"] == "fields"]
    assert f"{sum(map(good, focal))} of {len(focal)} runs" in SYNTHETIC["perhaps"]
    assert f"{sum(map(good, smooth))} of {len(smooth)} where" in SYNTHETIC["perhaps"]


def test_claims_are_as_near_to_the_truth_as_is_asked() -> None:
    found = reliability.errors(THIS)
    assert found["mean_error"] <= 0.05
    assert found["wrong_per_thousand"] <= 5.0


def test_confirmed_means_separated() -> None:
    """At most 1 confirmed run of 100 with q >= .1, none of nothing; good runs are confirmed."""
    found = reliability.verdicts(THIS)
    wrong, of = found["confirmed: q >= .1 or a component lost"]
    assert 100 * wrong <= of
    assert of >= 100
    nothing = [counts for name, counts in found.items() if name.startswith("nothing to separate")]
    assert sum(said for said, _ in nothing) == 0
    assert sum(of for _, of in nothing) >= 60
    for gate, g, least, most in (("open", 170, 57, 60), ("shut", 240, 19, 20)):
        said, of = found[f"q < .05, gate {gate}, G >= {g}: confirmed"]
        assert of >= most
        assert most * said >= least * of


def test_the_left_right_test_tells_brains_from_noise_of_any_smoothness() -> None:
    rows = json.loads((TOP / "bench" / "measured" / "brains.json").read_text(encoding="utf-8"))
    found = next(part["rows"] for part in rows if part["what"] == "test")
    assert [row["g"] for row in found] == [50.0, 100.0, 200.0, 400.0]
    for row in found:
        assert (row["noise_passes"], row["noise"]) == (0, 4000)
        assert row["brains_pass"] >= 99


# -- the benches themselves ------------------------------------------------------------------------

CALLED = {  # modules of others, and what the table of speed calls
    "brain_claims": "brains", "brain_names": "brains", "flare_echo": "flare",
    "peer_studies": "peers", "presets": "variants", "kernels": "all", "ledger": "all",
    "reading": "all", "round_start": "all", "utility": "all",
}  # fmt: skip


def test_every_bench_is_run_by_make_bench_smoke() -> None:
    """Two of them ended in an error of a policy that had been tightened, and nobody saw it."""
    text = (TOP / "Makefile").read_text(encoding="utf-8")
    smoke = text.split("SMOKE = ")[1].split("\nbench:")[0]
    run = set(re.findall(r"\w+", smoke))
    names = [path.stem for path in (TOP / "bench").glob("*.py")]
    assert [name for name in names if CALLED.get(name, name) not in run] == []
    speed = (TOP / "bench" / "all.py").read_text(encoding="utf-8")
    assert all(f'of_bench("{name}"' in speed for name, by in CALLED.items() if by == "all")


@pytest.mark.parametrize("name", sorted(path.stem for path in (TOP / "bench").glob("*.py")))
def test_every_bench_starts_as_its_page_types_it(name: str) -> None:
    """bench/flare.py needed a path that no page named."""
    if name == "flare_echo":  # a module of FLARE's processes
        return
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, str(TOP / "bench" / f"{name}.py"), "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"PYTHONPATH=test python bench/{name}.py" not in done.stdout


# -- the table of speed ----------------------------------------------------------------------------


def test_claims_of_spatial_maps_are_right_in_people_who_resemble_real_ones() -> None:
    """They were too modest by up to .36 in simpler people, who had as many networks as maps."""
    found = rows_of("claims.json")[0]
    of = [row for row in found["bins"] if row["of"] == "r > .5"]
    assert len(of) == 10
    assert min(row["maps"] for row in of) >= 75
    assert max(abs(row["claimed"] - row["true"]) for row in of) <= 0.07
    for part in ("good", "25%", "50%"):  # from .85 on, at any skewness, .91 of 772 with a quarter
        yes = [row["yes"] for row in found["rows"] if row["cohort"].split(" ")[0] == part]
        right = sum(n * share for n, share in yes if n) / sum(n for n, _ in yes)
        assert right >= 0.93, part
    # A run says how many networks its claims come to, and a plan how many maps are found again.
    for row in found["rows"]:
        if row["cohort"] == "good" or row["cohort"].startswith(("25%", "50%")):
            too_many = (row["claimed"] - row["true"]) * row["maps"] / row["runs"]
            assert abs(too_many) < (1.0 if row["cohort"] == "good" else 2.0), row
    noise = [row for row in found["rows"] if row["networks_in_noise"] is not None]
    assert sum(row["runs"] for row in noise) >= 1000
    # People with blocks moved are no smooth noise: one of 252 runs had 13.
    assert not any(row["networks_in_noise"] for row in noise)
    real = {50.0: (0.52, 0.35), 100.0: (0.60, 0.35), 200.0: (0.65, 0.34), 400.0: (0.72, 0.34)}
    for row in found["moments"]:
        assert (row["bagged"], row["noise"]) == pytest.approx(real[row["G"]], abs=0.06)
        assert row["bagged"] > row["once"]
