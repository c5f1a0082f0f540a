"""Every kind of question: its first sentence, and the files beside its page.

Tables are asked without noise through `cape.compare_groups`; questions of maps are invented records
beside maps that are drawn here (`cape/report/network_maps.py`).
Belongs to `cape/report/comparison_page.py`.
"""

from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

import cape
from cape.data.templates import digest_with, maps_with_names
from cape.errors import ConfigError
from cape.report import Brought, add_maps
from cape.report.comparison import COLUMN_TEXTS
from support import comparison_example as example
from support.comparison_example import TWO, compared, edge_names, effect

# The site of one group alone is told that nobody there is of the other.
pytestmark = pytest.mark.filterwarnings("ignore::cape.errors.SubjectsWarning")

REGIONS = ("Insula L", "Insula R", "Calcarine L", "Calcarine R")
EDGES = [f"{a} - {b}" for i, a in enumerate(REGIONS) for b in REGIONS[i + 1 :]]
VARIABLES = {"dx": ["control", "SZ"], "age": (18, 90), "sex": ["F", "M"]}
VOLUMES = {"hippocampus": (2500, 5500), "caudate": (2500, 5500)}
RANGES = dict.fromkeys(EDGES, (-2, 2))
THREE = {**VARIABLES, "dx": ["control", "SZ", "BD"]}
# kind -> (formula, other arguments, first words, files beside those of every comparison)
KINDS = {
    "groups": ("dx + age + sex", {}, "SZ and control differ in 1 of 2 outcomes, hippocampus: ", ()),
    "null": ("dx", {"outcomes": {"caudate": (2500, 5500)}},
             "No difference between SZ and control was found in caudate: ", ()),
    "age": ("age + dx", {}, "Both outcomes fall with age, most in ", ()),
    "three groups": ("dx + age", {"variables": THREE}, "Groups control, SZ and BD differ in 1 of",
                     ("omnibus",)),
    "slopes": ("dx * age", {"ask": "dx:age"},
               "The slope with age differs between SZ and control in 1 of 2 outcomes, hippo", ()),
    "two factors": ("dx * sex", {"ask": "dx:sex", "public": ["dx", "sex"]},
                    "No dependence of the effect of dx on sex was found in any of 2 outcome", ()),
    "change": ("dx", {"change": ("ses-1", "ses-2")},
               "SZ and control differ in the change from session 1 to 2 of 1 of 2 outcomes, caudat",
               ()),
    "edges": ("dx + age", {"outcomes": RANGES}, "SZ and control differ in 1 of 6 connections, ",
              ("matrix_SZ-control_estimate", "matrix_SZ-control_d", "matrix_SZ-control_p")),
    "pattern": ("dx", {"outcomes": RANGES, "test": "pattern"},
                "SZ and control differ along a pattern over 6 connections that was found in half",
                ("pattern", "matrix_SZ-control_weight")),
}  # fmt: skip


def tables(kind: str) -> dict[str, dict]:
    """Two sites of 150 people, and one with controls alone; what is planted is 6 errors large."""
    rng, made = np.random.default_rng(8), {}
    for s, n in enumerate((150, 150, 9)):
        dx = rng.integers(3 if kind == "three groups" else 2, size=n) * (s < 2)
        age, sex = rng.uniform(20, 80, n), rng.integers(2, size=n)
        years = (age - 50) / 10
        table = {"participant_id": [f"p{s}-{i}" for i in range(n)]}
        table |= {"dx": np.array(THREE["dx"])[dx], "age": age, "sex": np.array(["F", "M"])[sex]}
        slope = 0.6 * (kind == "slopes") * (dx == 1) * years
        u = rng.standard_normal(n) - 0.8 * (dx == 1) - 0.5 * years - slope
        table["hippocampus"] = 4000 + 400 * u
        table["caudate"] = 4000 + 400 * (rng.standard_normal(n) - 0.5 * years * (kind == "age"))
        edges = 0.5 * rng.standard_normal((n, len(EDGES)))
        edges[:, 0] += 0.5 * (dx == 1)
        table |= dict(zip(EDGES, edges.T, strict=True))
        if kind == "change":
            later = {**table, "hippocampus": table["hippocampus"] + 99 * rng.standard_normal(n),
                     "caudate": table["caudate"] + 99 * (rng.standard_normal(n) + dx)}  # fmt: skip
            both = {name: np.concatenate([table[name], later[name]]) for name in table}
            table = {**both, "session_id": ["ses-1"] * n + ["ses-2"] * n}
        made[f"site{s + 1}"] = table
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_sentence_and_the_files(kind: str, tmp_path: Path) -> None:
    formula, how, words, more = KINDS[kind]
    asked = {"variables": VARIABLES, "outcomes": VOLUMES, "public": "dx", **how}
    found = cape.compare_groups(tables(kind), formula, private=False, out=tmp_path / "out", **asked)
    assert found.sentence.startswith(words)
    folder = found.folder
    page = (folder / "index.html").read_text()
    assert found.sentence.partition(": ")[0] in page
    assert "This page has no pictures" not in page
    written = {path.stem for path in folder.glob("*.tsv")} - {"rounds"}
    assert written == {"effects", "sites", *more}
    effects = pd.read_csv(folder / "effects.tsv", sep="\t")
    assert list(effects.columns) == list(COLUMN_TEXTS["effects"])
    assert effects.d.tolist() == pytest.approx(found.effects.d.tolist(), rel=1e-11)
    if kind in ("edges", "pattern"):
        matrix = found.matrix()
        assert list(matrix.columns) == list(matrix.index) == list(REGIONS)
        np.testing.assert_array_equal(matrix, matrix.T)
        # A pattern has length 1, and every edge stands there twice.
        assert kind == "edges" or (matrix.to_numpy() ** 2).sum() == pytest.approx(2.0)
    # Public groups that a site has not: its people are none of "these sites".
    if kind not in ("age", "slopes", "two factors"):
        assert "site3 did not enter" in page
    for name in (name for name in written if name.startswith("matrix")):
        matrix = pd.read_csv(folder / f"{name}.tsv", sep="\t", index_col=0)
        assert list(matrix.columns) == list(matrix.index) == list(REGIONS)
        np.testing.assert_array_equal(matrix, matrix.T)


NETWORKS = "IC1 (visual), IC2 (motor), IC3 (visual), IC4 (motor)"


def with_maps(folder: Path, maps: Path) -> Path:
    path, labels = maps_with_names(maps)
    return add_maps(folder, Brought(path=path, labels=labels), digest_with)


def maps(folder: Path, n: int = 4) -> Path:
    """Write maps of a bump each, on 4 mm."""
    at = np.indices((30, 36, 30)).reshape(3, -1).T
    bumps = [np.exp(-((at - (8 + 4 * k, 18, 15)) ** 2).sum(axis=1) / 18) for k in range(n)]
    affine = np.diag([4.0, 4, 4, 1])
    affine[:3, 3] = (-60, -72, -60)
    image = nib.Nifti1Image(np.stack(bumps, 1).reshape(30, 36, 30, n).astype(np.float32), affine)
    nib.save(image, folder / "maps.nii.gz")
    return folder / "maps.nii.gz"


@pytest.mark.parametrize(
    ("outcomes", "first", "words"),
    [
        ("fnc", "IC1 - IC2", "SZ and control differ in 1 of 6 connections, IC1 - IC2: -0.50 sd"),
        ("domains", "visual - motor",
         "SZ and control differ in 1 of 3 connections of domains, visual - motor: -0.50 sd"),
        ("loadings", "IC1", "SZ and control differ in 1 of 4 network strengths, IC1: -0.50 sd"),
        ("power", "IC1 0.01-0.1 Hz",
         "SZ and control differ in 1 of 8 shares of power, IC1 0.01-0.1 Hz: -0.50 sd"),
    ],
)  # fmt: skip
def test_networks_have_names_places_and_pictures(outcomes, first, words, tmp_path) -> None:
    asked = {**TWO, "outcomes": outcomes, "networks": NETWORKS}
    rows = [effect(name, -0.5 * (name == first)) for name in edge_names(asked)]
    example.write(tmp_path / "out", compared(rows, asked))
    without = (tmp_path / "out/index.html").read_text()
    assert words.partition(": ")[0] in without
    assert 'class="mosaic pairs"' not in without
    page = with_maps(tmp_path / "out", maps(tmp_path)).read_text()
    assert "This page has no pictures" not in page
    assert ('class="mosaic pairs"' in page) == (outcomes != "domains")
    assert ("a glass brain" in page or "red above zero" in page) == (outcomes == "fnc")
    networks = pd.read_csv(tmp_path / "out/networks.tsv", sep="\t")
    assert networks.name.tolist() == ["IC1", "IC2", "IC3", "IC4"]
    assert networks.domain.tolist() == ["visual", "motor"] * 2
    assert networks.x.tolist() == [-28, -12, 4, 20]
    assert (networks.file.unique().tolist(), networks.volume.tolist()) == (
        ["networks.nii.gz"], [0, 1, 2, 3],
    )  # fmt: skip


def test_regions_of_an_atlas_have_names_and_colours(tmp_path: Path) -> None:
    labels = np.zeros((30, 36, 30), dtype=np.int16)
    for k in range(4):
        labels[4 + 5 * k : 8 + 5 * k, 10:20, 10:20] = k + 1
    nib.save(nib.Nifti1Image(labels, np.diag([4.0, 4, 4, 1])), tmp_path / "atlas.nii.gz")
    names = "".join(f"{k}\t{name}\n" for k, name in enumerate(REGIONS, 1))
    (tmp_path / "atlas.tsv").write_text(f"index\tname\n{names}")
    for kind, outcomes in (("regions", REGIONS), ("edges", EDGES)):
        asked = {**TWO, "outcomes": ", ".join(f'"{name}" 1000:5000' for name in outcomes)}
        rows = [effect(name, -0.5 * (k == 0)) for k, name in enumerate(outcomes)]
        example.write(tmp_path / kind, compared(rows, asked))
        page = with_maps(tmp_path / kind, tmp_path / "atlas.nii.gz").read_text()
        assert ("regions that leave zero" in page) == (kind == "regions")
        assert ("of these, red above zero" in page) == (kind == "edges")
        networks = pd.read_csv(tmp_path / kind / "networks.tsv", sep="\t")
        assert networks.name.tolist() == list(REGIONS)
        assert networks.x.tolist() == [22, 42, 62, 82]


def test_maps_that_are_not_the_runs_are_refused_and_change_nothing(tmp_path: Path) -> None:
    """They were dropped without a word."""
    asked = {**TWO, "outcomes": "fnc", "networks": NETWORKS}
    example.write(tmp_path / "out", compared([effect(n) for n in edge_names(asked)], asked))
    first = (tmp_path / "out/index.html").read_bytes()
    with pytest.raises(ConfigError, match=r"E016 .*holds 3 maps, the run names 4"):
        with_maps(tmp_path / "out", maps(tmp_path, n=3))
    assert (tmp_path / "out/index.html").read_bytes() == first
    (tmp_path / "maps.csv").write_text("1,2\n")
    with_maps(tmp_path / "out", tmp_path / "maps.csv")
    assert (tmp_path / "out/index.html").read_bytes() == first
