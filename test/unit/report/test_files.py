"""The files of the consortium and of one site: content, bytes, and what must not be in them."""

import dataclasses
import json
import math
import re
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import cape.report
from cape.algorithms.component_order import z_scores
from cape.privacy.accounting import gdp_epsilon
from cape.privacy.cost import Cost
from cape.privacy.ledger import Ledger, read_entries
from cape.protocol.messages import FeatureSpace
from cape.report import files, maps, plots
from support import report_example as example

ON_A_GRID = {
    "components.tsv", "group_maps.nii.gz", "index.html", "methods.md", "privacy.json",
    "references.bib", "results.json", "rounds.tsv", "settings.json", "unmixing.npz",
}  # fmt: skip
LIBRARIES = ("matplotlib", "nilearn")


@pytest.fixture
def _no_extra(monkeypatch):
    """Make the extra `report` look as if it were not installed."""
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, None)


pytestmark = pytest.mark.usefixtures("_no_extra")


def write(folder: Path, made=None, **changes) -> Path:
    cape.report.write_results(folder, example.outcome(**changes) if made is None else made)
    return folder


def load(folder: Path, name: str) -> dict:
    def refuse(text: str) -> float:
        raise AssertionError(f"{name} holds {text}")

    return json.loads((folder / name).read_text(), parse_constant=refuse)


def test_each_map_is_a_file_of_its_own_too_with_its_name_in_the_list(tmp_path):
    folder = write(tmp_path, private=False)
    whole = files.load_image(folder / "group_maps.nii.gz")
    rows = files.read_table(folder / "maps.tsv")
    assert [row["name"] for row in rows] == ["C01", "C02", "C03"]
    for k, row in enumerate(rows):
        one = files.load_image(folder / row["file"])
        assert np.array_equal(one.dataobj, np.asarray(whole.dataobj)[..., k])
        assert np.array_equal(one.affine, whole.affine)
        assert b"NOT PRIVATE" in one.header["descrip"].tobytes()
        assert one.header.extensions[0].get_content().decode().strip("\0") == row["name"]


def test_exactly_the_promised_files_are_written(tmp_path):
    single = {f"desc-groupC0{k}_stat-z_statmap.nii.gz" for k in (1, 2, 3)} | {"maps.tsv"}
    assert {p.name for p in write(tmp_path / "grid").iterdir()} == ON_A_GRID | single
    plain = write(tmp_path / "columns", space=FeatureSpace.of_matrix(30))
    names = {p.name for p in plain.iterdir()}
    assert names == ON_A_GRID - {"group_maps.nii.gz"} | {"group_maps.csv"}


def test_equal_outcomes_give_equal_bytes(tmp_path):
    one, two = write(tmp_path / "one"), write(tmp_path / "two")
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes(), path.name


def test_results_say_how_the_run_ended_and_what_it_cost(tmp_path):
    made = example.outcome()
    results = load(write(tmp_path, made), "results.json")
    assert results["status"] == "converged"
    assert (results["n_sites"], results["n_subjects"], results["n_components"]) == (3, 1024, 3)
    assert (results["rounds"], results["rounds_planned"]) == (12, 12)
    assert results["unit"] == "subject"
    assert results["relation"] == "replace-one"
    assert results["private"] is True
    assert results["simulation"] is False
    assert results["q_ngi"] is results["map_correlation"] is None
    assert results["epsilon"] == results["epsilon_planned"] == results["epsilon_spent"]
    assert results["epsilon"] == pytest.approx(made.ledger.epsilon_spent(), rel=1e-12)
    assert results["epsilon"] <= 1.0
    assert results["epsilon_unspent"] < 1e-3
    # The page named a rest that only rounding leaves: "mu 8.5e-08, by itself epsilon 0".
    assert "Unspent: nothing. Costs add" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize("changes", [{"private": False}, {"seeded": True}])
def test_a_run_without_guarantee_claims_no_epsilon_anywhere(tmp_path, changes):
    folder = write(tmp_path, **changes)
    results, privacy = load(folder, "results.json"), load(folder, "privacy.json")
    assert results["private"] is privacy["private"] is False
    assert privacy["guarantee"] == "none"
    claims = [results[k] for k in ("epsilon", "mu", "epsilon_spent", "epsilon_unspent")]
    claims += [v for view in privacy["views"] for v in (view["mu"], view["epsilon"])]
    claims += [e[k] for e in privacy["events"] for k in ("mu", "mu_so_far", "epsilon_so_far")]
    assert set(claims) == {None}
    assert {row["epsilon_so_far"] for row in files.read_table(folder / "rounds.tsv")} == {"n/a"}
    planned = results["epsilon_planned"]
    assert planned is None if "private" in changes else planned == pytest.approx(1.0, rel=1e-8)
    assert "NOT PRIVATE" in (folder / "index.html").read_text()
    assert "not private" in (folder / "methods.md").read_text()
    import nibabel

    image = nibabel.load(folder / "group_maps.nii.gz")
    assert b"NOT PRIVATE" in image.header["descrip"].tobytes()


def test_the_privacy_statement_can_be_checked_by_anybody(tmp_path):
    made = example.outcome()
    privacy = load(write(tmp_path, made), "privacy.json")
    events = read_entries(privacy["ledger"]["entries"], head=privacy["ledger"]["head"])
    assert events == made.ledger.events
    total = sum(Fraction(event["mu2"]) for event in privacy["events"])
    assert privacy["mu"] == pytest.approx(math.sqrt(total), rel=1e-12)
    assert privacy["epsilon"] == pytest.approx(
        gdp_epsilon(mu=math.sqrt(total), delta=privacy["delta"]), rel=1e-9
    )
    seen = Cost(mu2=total).by_viewer(noise_shares=2, n_sites=3, noise="correlated")
    by_key = {view["key"]: view for view in privacy["views"]}
    for key in ("outsider", "one_site", "aggregator"):
        assert by_key[key]["epsilon"] == pytest.approx(
            seen[key].epsilon(privacy["delta"]), rel=1e-9
        )
    assert [view["headline"] for view in privacy["views"]] == [False, False, True]
    assert by_key["aggregator"]["epsilon"] == privacy["epsilon"]
    assert privacy["if_more_collude"][0]["epsilon"] > privacy["epsilon"]


def with_sites(n: int, *, survivors: int, colluders: int, aggregation: str):
    """Return an outcome of so many sites like the first."""
    made = example.outcome()
    entries = [dataclasses.replace(made.roster.sites[0], site=f"site{i:02}") for i in range(n)]
    roster = dataclasses.replace(
        made.roster, sites=tuple(entries), survivors=survivors, colluders=colluders
    )
    settings = {**made.settings, "aggregation": aggregation}
    return dataclasses.replace(made, roster=roster, settings=settings)


def test_a_graph_is_said_and_more_colluders_than_it_is_made_for_leave_one_share(tmp_path):
    figures = {}
    for way in ("all-sites", "secagg"):
        run = with_sites(50, survivors=45, colluders=1, aggregation=way)
        figures[way] = load(write(tmp_path / way, run), "privacy.json")
    said = " ".join(figures["secagg"]["assumptions"])
    assert "masks against 14 others in a random graph, 9 of whom" in said
    assert "graph" not in " ".join(figures["all-sites"]["assumptions"])
    beyond = {
        way: [row["mu"] for row in found["if_more_collude"]] for way, found in figures.items()
    }
    assert beyond["secagg"] == [max(beyond["all-sites"])] * len(beyond["all-sites"])
    assert min(beyond["all-sites"]) < max(beyond["all-sites"])


def test_of_drop_outs_more_colluders_than_two_lists_allow_leave_one_share(tmp_path):
    """S 10, t 7, S_C 3: a fourth could sign two lists, which open both secrets of a site."""
    run = with_sites(10, survivors=7, colluders=3, aggregation="secagg")
    privacy = load(write(tmp_path, run), "privacy.json")
    rows = {row["colluders"]: row["mu"] for row in privacy["if_more_collude"]}
    assert rows == dict.fromkeys((4, 6), pytest.approx(privacy["mu"] * math.sqrt(4)))


def test_every_release_stands_in_the_privacy_statement_with_its_noise(tmp_path):
    made = example.outcome()
    rows = load(write(tmp_path, made), "privacy.json")["events"]
    assert len(rows) == len(made.ledger.events) == 15
    for row, event in zip(rows, made.ledger.events, strict=True):
        assert (row["phase"], row["round"], row["size"]) == (event.phase, event.round, event.size)
        assert row["s2"] == str(event.variance)
        assert row["clip"] * event.gamma == event.clip_int
        assert row["sensitivity"] * event.gamma == event.delta_int
        assert row["noise_std_mean"] == event.noise_std(3, 1024)
    assert rows[-1]["digest"] == made.ledger.head
    assert all(a["epsilon_so_far"] < b["epsilon_so_far"] for a, b in pairwise(rows))


def test_a_run_that_stops_early_keeps_the_guarantee_of_its_plan(tmp_path):
    full = example.outcome()
    ledger = Ledger(budget=full.ledger.budget)
    for event in full.ledger.events[:5]:
        ledger = ledger.charge(event)
    early = dataclasses.replace(full, ledger=ledger, trace=full.trace[:5], status="diverged")
    results = load(write(tmp_path / "early", early), "results.json")
    whole = load(write(tmp_path / "full", full), "results.json")
    assert results["epsilon"] == whole["epsilon"]
    assert results["epsilon_spent"] < 0.9
    assert results["mu_spent"] ** 2 + results["mu_unspent"] ** 2 == pytest.approx(
        full.ledger.budget.mu**2, rel=1e-12
    )
    assert results["rounds"] == 2


def test_each_site_adding_all_noise_by_itself_gives_all_viewers_the_same_figure(tmp_path):
    made = example.outcome()
    made = dataclasses.replace(made, settings={**made.settings, "noise": "local"})
    privacy = load(write(tmp_path, made), "privacy.json")
    assert len({view["epsilon"] for view in privacy["views"]}) == 1
    assert {row["epsilon"] for row in privacy["if_more_collude"]} == {privacy["epsilon"]}


def test_what_is_not_finite_becomes_null(tmp_path):
    made = example.outcome(stability=math.nan, edge=math.inf, gap_ratio=np.float64(2.5))
    results = load(write(tmp_path, made), "results.json")
    assert results["stability"] is results["noise_edge"] is None
    assert results["gap_ratio"] == 2.5


def test_rounds_tell_statistic_noise_step_and_cost_so_far(tmp_path):
    made = example.outcome()
    folder = write(tmp_path, made)
    rows = files.read_table(folder / "rounds.tsv")
    assert [row["phase"] for row in rows] == ["pca"] + ["whitening"] * 2 + ["iterate"] * 12
    assert float(rows[3]["statistic_norm"]) == 2.0
    assert rows[0]["stability"] == "n/a"
    assert rows[-1]["stability"] == "0.934"
    epsilon = [float(row["epsilon_so_far"]) for row in rows]
    assert epsilon == sorted(epsilon)
    assert epsilon[-1] == pytest.approx(load(folder, "results.json")["epsilon"], rel=1e-10)


def test_maps_are_z_scores_on_the_grid_of_the_mask(tmp_path):
    import nibabel

    made = example.outcome()
    image = nibabel.load(write(tmp_path, made) / "group_maps.nii.gz")
    values = np.asarray(image.dataobj)
    inside = made.space.labels() > 0
    assert values.shape == (*made.space.shape, 3)
    assert image.get_data_dtype() == np.float32
    assert np.array_equal(image.affine.ravel(), made.space.affine)
    assert not values[~inside].any()
    assert np.abs(values[inside].mean(axis=0)).max() < 1e-6
    assert np.abs(values[inside].std(axis=0) - 1).max() < 1e-6
    assert image.header["sform_code"] == image.header["qform_code"] == 2
    # What other tools read: the kind of values, the range that viewers begin with, names.
    assert image.header.get_intent() == ("z score", (), "z-map")
    limit = plots.colour_limit(values[inside])
    assert (image.header["cal_min"], image.header["cal_max"]) == (plots.THRESHOLD, limit)
    (comment,) = image.header.extensions
    assert (comment.get_code(), comment.get_content()) == (6, b"volumes: C01 C02 C03")


def test_atlas_maps_are_painted_by_label(tmp_path):
    import nibabel

    made = example.outcome(example.mask_space(atlas=True), rank=2)
    folder = write(tmp_path, made)
    values = np.asarray(nibabel.load(folder / "group_maps.nii.gz").dataobj)
    labels = made.space.labels()
    z = z_scores(made.A)
    for row, label in enumerate(np.unique(labels[labels > 0])):
        assert np.allclose(values[labels == label], z[row], atol=1e-6)
    peaks = files.read_table(folder / "components.tsv")
    where = maps.coordinates(made.space)
    assert float(peaks[0]["peak_x_mm"]) == where[int(peaks[0]["peak_feature"]) - 1, 0]


def test_the_peak_is_given_in_mm_of_the_affine(tmp_path):
    space = example.mask_space()
    A = np.zeros((space.n_features, 2))
    A[7, 0], A[30, 1] = 2.0, 1.0
    folder = write(tmp_path, example.outcome(space, A=A))
    rows = files.read_table(folder / "components.tsv")
    voxel = np.argwhere(space.labels() > 0)[7]
    wanted = np.array(space.affine).reshape(4, 4) @ [*voxel, 1]
    assert [float(rows[0][f"peak_{axis}_mm"]) for axis in "xyz"] == wanted[:3].tolist()
    assert [row["name"] for row in rows] == ["C01", "C02"]
    assert float(rows[0]["share"]) == pytest.approx(0.8)
    assert float(rows[0]["peak_z"]) == pytest.approx(math.sqrt(space.n_features - 1), rel=1e-9)
    assert float(rows[0]["skewness"]) > 5
    assert float(rows[0]["kurtosis"]) > 50


def test_unmixing_and_maps_are_inverse_and_need_no_pickle(tmp_path):
    with np.load(write(tmp_path) / "unmixing.npz", allow_pickle=False) as arrays:
        assert set(arrays) >= {"W", "U", "V", "W_total", "A", "eigenvalues"}
        assert np.abs(arrays["W_total"] @ arrays["A"] - np.eye(3)).max() < 1e-12
        assert arrays["A"].dtype == np.float64


def test_a_simulation_claims_synthetic_data_only_where_it_is_told_so(tmp_path):
    # Every run of `cape simulate` once said so, on people's own files too, in page and paragraph.
    folder = write(tmp_path)
    for synthetic in (False, True):
        cape.report.add_score(folder, q_ngi=None, map_correlation=None, synthetic=synthetic)
        assert load(folder, "results.json")["synthetic"] is synthetic
        page, text = ((folder / name).read_text() for name in ("index.html", "methods.md"))
        assert "SIMULATION: all sites were simulated on one computer." in page
        assert "this is a simulation of all sites on one computer" in text
        assert "left its site" not in text
        assert ("Their data are synthetic, not of people." in page) == synthetic
        assert ("on synthetic data" in text) == synthetic


def of_kind(kind: str, **changes):
    made = example.outcome(rounds=1, **changes)
    if kind != "temporal":  # no rounds, nothing to judge
        made = dataclasses.replace(made, verdict=None)
    return dataclasses.replace(made, kind=kind)


def test_the_methods_paragraph_claims_of_each_model_what_is_true_of_it(tmp_path):
    # A template run once claimed signs by skewness, a spatial one an unmixing matrix that settled.
    found = {
        (kind, status): (
            write(tmp_path / kind / status, of_kind(kind, status=status, stability=0.0))
            / "methods.md"
        ).read_text()
        for kind, status in (
            ("temporal", "max_rounds"), ("temporal", "converged"), ("spatial", "networks"),
            ("spatial", "released"), ("spatial", "nothing_found"), ("template", "released"),
        )
    }  # fmt: skip
    for (kind, status), text in found.items():
        assert ("order, number and sign of the maps are those of the public" in text) == (
            kind == "template"
        )
        assert ("makes its skewness positive" in text) == (kind != "template")
        assert ("unmixing matrix" in text) == (status == "max_rounds")
        assert ("curvature 0.20" in text) == (status == "converged")
        assert ("; 3 of 3 confirmed: the rounds" in text) == (status == "converged")
        assert ("from one release" in text) == (kind != "temporal")
        assert not re.search(r"Private (spatial|dual)", text)  # private=false has them, too
        assert "stability 0" not in text
    assert "on both sides were found, by the left-right test" in found["spatial", "networks"]
    assert "no more than smooth noise" in found["spatial", "nothing_found"]
    folder = tmp_path / "spatial" / "networks"
    page = (folder / "index.html").read_text()
    assert "Status networks: patterns that are the same on both sides were found, by the" in page
    # What was measured on real brains to be wrong, or says nothing of a run of one release
    for words in (
        "Suggested number of components", "did not settle", "no spectral gap",
        "components were recovered on synthetic",
    ):  # fmt: skip
        assert words not in page
    assert (folder / "group_maps.nii.gz").exists() or (folder / "group_maps.csv").exists()
    assert not [*folder.glob("spatial_maps*")]  # they are the maps themselves
    unnamed = tmp_path / "spatial" / "nothing_found"
    assert [path.name.split(".")[0] for path in unnamed.glob("*_maps.*")] == ["unconfirmed_maps"]
    assert load(unnamed, "results.json")["labels"]["template"] is None


def test_sites_that_dropped_out_are_named_in_the_paragraph_and_on_the_page(tmp_path):
    # After a drop-out the paragraph still said "1024 subjects of 3 sites", and nothing else.
    made = example.outcome()
    whole = (write(tmp_path / "whole", made) / "methods.md").read_text()
    assert "dropped out" not in whole
    last = dataclasses.replace(made.trace[-1], survivors=("local0", "local2"))
    folder = write(tmp_path / "left", dataclasses.replace(made, trace=(*made.trace[:-1], last)))
    text = (folder / "methods.md").read_text()
    assert "1 of the sites dropped out during the run (local1)" in text
    assert "the last sum holds 812 subjects of 2 sites" in text
    assert "Dropped out: local1." in (folder / "index.html").read_text()


def test_hostile_labels_of_subjects_cannot_leave_the_folder_or_overwrite_each_other(tmp_path):
    labels = ("../../etc/passwd", "a/b", "a-b", "", "sub-1\n", "<script>")
    made = example.outcome()
    cape.report.write_site(tmp_path, example.site_outcome(made, labels))
    written = sorted(tmp_path.rglob("*_timeseries.tsv"))
    assert len(written) == len(labels)
    assert {p.parents[2] for p in written} == {tmp_path / "private"}
    assert "<script>" not in (tmp_path / "private" / "index.html").read_text()


def test_importing_the_report_loads_no_library_but_numpy():
    code = (
        "import sys, cape.report; "
        "print(*sorted({'matplotlib', 'nilearn', 'jinja2', 'nibabel', 'scipy', 'PIL'} "
        "& set(sys.modules)))"
    )
    root = Path(cape.report.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
