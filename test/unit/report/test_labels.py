"""Nearest networks: the built-in atlas, the user's own image, and what chance gives."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

import cape.report
from cape.algorithms import kernel
from cape.engines.coinstac import display
from cape.errors import ConfigError
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import IcaOutcome
from cape.report import confidence, files, labels, maps
from support import report_example as example


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    """Pages without pictures: they are other tests' business."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def outcome(space: FeatureSpace | None = None, **changes: object) -> IcaOutcome:
    """Return an outcome whose maps are as fine as its features: no public basis."""
    made = example.outcome(space, **changes)
    roster = dataclasses.replace(made.roster, n_basis=made.space.n_features)
    return dataclasses.replace(made, roster=roster)


NETWORKS = ("auditory", "cingulo opercular", "default mode", "dorsal attention",
            "fronto parietal", "medial temporal lobe", "parieto medial", "reward", "salience",
            "somatomotor dorsal", "somatomotor lateral", "ventral attention",
            "visual",
            "cerebellum", "cingulo-opercular", "default", "fronto-parietal", "occipital",
            "sensorimotor")  # fmt: skip
DEFAULT, VISUAL, SOMATOMOTOR = 2, 12, 9


def test_a_map_of_a_network_gets_its_name_above_chance():
    space = example.brain()
    template = labels.bundled(space)
    assert template.labels == NETWORKS
    rng = np.random.default_rng(0)
    # Two networks and smooth nonsense that belongs to none.
    where = maps.coordinates(space)
    waves = [np.cos(where @ rng.normal(size=3) / 12) for _ in range(10)]
    z = np.stack([-template.values[:, DEFAULT], template.values[:, VISUAL], *waves], axis=1)
    z[:, :2] += 0.1 * z[:, :2].std() * rng.standard_normal((len(z), 2))
    found = labels.match_networks(z, template, space)
    assert [m.label for m in found[:2]] == ["default mode", "visual"]
    assert found[0].r < -0.9
    assert found[1].r > 0.9
    assert 0.2 < found[0].chance < 0.9


@pytest.mark.parametrize("sides", [False, True])
@pytest.mark.parametrize("width", [6.0, 12.0])
def test_at_most_1_of_20_random_maps_of_the_same_smoothness_gets_a_name(width, sides):
    """Of 300 maps of noise 3 are expected above a level of 99 in 100; 13 in 1 of 60,000 runs."""
    space, rng = example.brain(), np.random.default_rng(1)
    template = labels.bundled(space)
    mask, mm = space.labels() > 0, (10.0, 10.0, 10.0)
    z = kernel.smooth(mask, mm, rng.standard_normal((space.n_features, 300)), width)
    if sides:
        mirror = labels._mirror(space)
        z[mirror >= 0] += z[mirror[mirror >= 0]]
    found = labels.match_networks(z, template, space)
    assert sum(abs(m.r) > m.chance for m in found) <= 12
    # Nor is it out of reach: the level of rough maps is low, of smooth and symmetric ones higher.
    low, high = {6.0: (0.13, 0.3), 12.0: (0.28, 0.65)}[width]
    assert low < np.median([m.chance for m in found]) < high


def test_fine_grids_are_thinned_and_keep_their_chance_level(monkeypatch):
    space = example.brain()
    white = np.random.default_rng(5).standard_normal((space.n_features, 3))
    z = kernel.smooth(space.labels() > 0, (10.0, 10.0, 10.0), white, 20.0)
    whole = [m.chance for m in labels.match_networks(z, labels.bundled(space), space)]
    monkeypatch.setattr(labels, "MAX_RANDOM_VOXELS", 500)
    asked = []
    smoothed = labels._smoothed
    monkeypatch.setattr(labels, "_smoothed", lambda c, *a: asked.append(len(c)) or smoothed(c, *a))
    thin = [m.chance for m in labels.match_networks(z, labels.bundled(space), space)]
    assert max(asked) < 500
    assert np.allclose(thin, whole, rtol=0.2)


def test_parcels_have_a_chance_level_too():
    space = dataclasses.replace(example.mask_space(atlas=True), template_space="MNI152")
    z = np.random.default_rng(3).standard_normal((space.n_features, 2))
    for one in labels.match_networks(z, labels.bundled(space), space):
        assert 0.3 < one.chance <= 1.0  # eight parcels say next to nothing


def test_constant_templates_match_nothing():
    template = labels.Template(name="t", labels=("flat",), values=np.full((30, 1), 0.1))
    z = np.random.default_rng(2).standard_normal((30, 2))
    found = labels.match_networks(z, template, FeatureSpace.of_matrix(30))
    assert [m.r for m in found] == [0.0, 0.0]


def test_what_is_not_above_chance_has_no_name_but_its_nearest_network(tmp_path):
    space = example.brain()
    rng = np.random.default_rng(3)
    A = np.c_[labels.bundled(space).values[:, VISUAL], rng.standard_normal((space.n_features, 2))]
    made = outcome(space, A=A)
    cape.report.write_results(tmp_path, made)
    named, *nameless = files.read_table(tmp_path / "components.tsv")
    assert named["label"] == "visual"
    # What COINSTAC shows its users as the result
    table = display.tables(made)
    for row in nameless:
        assert row["label"] == files.EMPTY_CELL
        assert table[f"Global {row['name']}"]["label"] == display.NO_VALUE
        assert abs(float(row["label_r"])) < float(row["label_chance"])
    page = (tmp_path / "index.html").read_text()
    # What is nearest stands there with its r and chance, and that it is no name.
    for row in nameless:
        assert row["nearest"] in NETWORKS
        assert row["nearest_set"] in ("seitzman_2018", "dosenbach_2010")
        assert f">no name ({row['nearest']})</td>" in page


@pytest.mark.parametrize(
    ("curvature", "gate", "named"),
    [(0.2, True, ["visual", ""]), (0.0, True, ["", ""]), (0.0, False, ["", ""])],
)  # fmt: skip
def test_only_maps_that_their_time_courses_confirmed_get_a_name(tmp_path, curvature, gate, named):
    space = example.brain()
    made = outcome(space, A=labels.bundled(space).values[:, [VISUAL, SOMATOMOTOR]])
    judged = example.verdict_of(2, gate=gate, curvature=curvature)
    judged = dataclasses.replace(judged, confirmed=judged.confirmed[:1])
    cape.report.write_results(
        tmp_path, dataclasses.replace(made, verdict=judged, status=judged.status)
    )
    rows = files.read_table(tmp_path / "components.tsv")
    assert [row["label"].replace(files.EMPTY_CELL, "") for row in rows] == named
    assert [row["nearest"] for row in rows] == ["visual", "somatomotor dorsal"]
    page = (tmp_path / "index.html").read_text()
    assert ('">visual</td>' in page) == (named[0] == "visual")
    assert '">somatomotor dorsal</td>' not in page


def test_outside_mni_and_without_nilearn_there_is_no_label_and_a_reason(tmp_path, monkeypatch):
    space = example.brain()
    # The same grid, of which nobody said what it is of: a rat's would get human labels.
    nameless = dataclasses.replace(space, template_space="")
    A = labels.np.random.default_rng(0).standard_normal((space.n_features, 2))
    cape.report.write_results(tmp_path / "other", outcome(nameless, A=A))
    monkeypatch.setitem(sys.modules, "nilearn", None)
    A = labels.np.random.default_rng(0).standard_normal((space.n_features, 2))
    cape.report.write_results(tmp_path / "bare", outcome(space, A=A))
    # A run whose grid is known may still find nothing: that is why it has no names.
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    cape.report.write_results(
        tmp_path / "nothing", outcome(space, A=A, status="nothing_found", kind="spatial")
    )
    why = {"other": "MNI space (setting space)", "bare": "come with nilearn", "nothing": "noise"}
    for name, words in why.items():
        rows = files.read_table(tmp_path / name / "components.tsv")
        assert {row["label"] for row in rows} == {"n/a"}
        results = files.read_json(tmp_path / name / "results.json")
        assert results["labels"]["template"] is None
        assert "No labels" in results["labels"]["note"]
        assert words in results["labels"]["note"]


@pytest.fixture
def result(tmp_path) -> Path:
    folder = tmp_path / "run"
    cape.report.write_results(folder, outcome())
    return folder


def image(path: Path, values: np.ndarray, affine: np.ndarray) -> Path:
    import nibabel

    nibabel.save(nibabel.Nifti1Image(values, affine), path)
    return path


def own_maps(result: Path) -> tuple[np.ndarray, np.ndarray]:
    loaded = files.load_image(result / "group_maps.nii.gz")
    return np.asarray(loaded.dataobj), np.asarray(loaded.affine)


def test_the_users_own_templates_rename_the_components(result, tmp_path):
    values, affine = own_maps(result)
    template = image(tmp_path / "mine.nii.gz", values[..., [2, 0]], affine)
    names = tmp_path / "names.txt"
    names.write_text("third\tnetwork\n\nfirst\n")
    page = cape.report.relabel(result, template, names).read_text()
    rows = files.read_table(result / "components.tsv")
    assert (rows[0]["label"], rows[2]["label"]) == ("first", "third network")
    assert float(rows[2]["label_r"]) == pytest.approx(1.0)
    assert '">first</td><td data-name="r" class="number">1.00</td>' in page
    results = files.read_json(result / "results.json")
    assert results["labels"]["template"] == "mine"
    assert "Seitzman" not in page


def test_templates_on_another_grid_are_read_where_the_features_are(result, tmp_path):
    values, affine = own_maps(result)
    fine = np.repeat(np.repeat(np.repeat(values, 2, 0), 2, 1), 2, 2).astype(np.float32)
    half = affine @ np.diag([0.5, 0.5, 0.5, 1.0])
    half[:3, 3] = affine[:3, 3] - affine[:3, :3].sum(axis=1) / 4
    cape.report.relabel(result, image(tmp_path / "fine.nii", fine, half))
    rows = files.read_table(result / "components.tsv")
    assert [row["label"] for row in rows] == ["T01", "T02", "T03"]
    assert min(float(row["label_r"]) for row in rows) > 0.9


@pytest.mark.parametrize(
    ("code", "prepare"),
    [
        ("E270", lambda r, t: (r / "group_maps.nii.gz").unlink()),
        ("E271", lambda r, t: t.write_text("not an image")),
        ("E274", lambda r, t: (r / "components.tsv").unlink()),
    ],
)
def test_templates_that_cannot_be_used_are_refused(result, tmp_path, code, prepare):
    values, affine = own_maps(result)
    template = image(tmp_path / "mine.nii", values, affine)
    prepare(result, template)
    with pytest.raises(ConfigError, match=f"CAPE-{code}") as caught:
        cape.report.relabel(result, template)
    assert "mine.nii" not in caught.value.public


def test_columns_have_no_templates(tmp_path):
    cape.report.write_results(tmp_path, outcome(FeatureSpace.of_matrix(30)))
    with pytest.raises(ConfigError, match=r"CAPE-E270 .* of kind matrix"):
        cape.report.relabel(tmp_path, tmp_path / "mine.nii")


def test_a_wrong_number_of_names_and_a_flat_image_are_refused(result, tmp_path):
    values, affine = own_maps(result)
    template = image(tmp_path / "mine.nii", values, affine)
    names = tmp_path / "names.txt"
    names.write_text("one\n")
    with pytest.raises(ConfigError, match="CAPE-E273 1 names for 3"):
        cape.report.relabel(result, template, names)
    flat = image(tmp_path / "flat.nii", values[0, :, :, 0], affine)
    with pytest.raises(ConfigError, match="CAPE-E271"):
        cape.report.relabel(result, flat)


def test_the_run_itself_is_compared_in_its_own_basis(tmp_path):
    """Maps of a finished run lie in its public basis, which the report makes again."""
    from cape.settings.resolved import resolve
    from cape.space.public_basis import public_basis

    space = example.brain()
    made = example.outcome(space, A=labels.bundled(space).values[:, [DEFAULT, VISUAL]])
    config = confidence.config_of(made.computation, made.settings, 2)
    B = public_basis(resolve(config), space, made.roster.n_basis)
    coarse = dataclasses.replace(made, A=B @ (B.T @ made.A))
    cape.report.write_results(tmp_path, coarse)
    assert [float(row["label_r"]) for row in files.read_table(tmp_path / "components.tsv")] == (
        pytest.approx([1.0, 1.0])
    )
    # And once more from the folder alone.
    cape.report.relabel(tmp_path, "dosenbach_2010,seitzman_2018")
    again = files.read_table(tmp_path / "components.tsv")
    assert [float(row["label_r"]) for row in again] == pytest.approx([1.0, 1.0])


def test_the_mirror_image_of_a_network_gets_no_name():
    row = maps.Component(
        name="C02", share=None, skewness=1.0, kurtosis=1.0, peak_feature=1, peak_z=3.0,
        found_again="image", mirror_of="C01",
    )  # fmt: skip
    best = labels.Match(label="visual", source="seitzman_2018", r=0.9, chance=0.3)
    yes = dataclasses.replace(row, found_again="yes")
    one, other = labels.named([row, yes], [best, best], "mask", 60)
    assert (one.label, one.nearest) == (None, "visual")
    assert other.label == "visual"


@pytest.mark.parametrize(("regions", "named"), [(1, False), (2, False), (3, False), (6, True)])
def test_a_name_needs_more_than_a_pair_of_parcels(regions, named):
    # A single left-right pair of an atlas was "default mode"; of voxels a map may be as small.
    A = np.zeros((60, 1))
    A[:regions] = 1.0
    row = maps.describe(A, FeatureSpace.of_matrix(60))
    best = [labels.Match(label="visual", source="seitzman_2018", r=0.9, chance=0.3)]
    for kind, label in (("atlas", named), ("parcels", named), ("mask", True)):
        assert (labels.named(row, best, kind, 60)[0].label == "visual") is label


# -- sets by name ----------------------------------------------------------------------------------


def in_mni(folder: Path) -> Path:
    space = example.brain()
    A = labels.bundled(space).values[:, [DEFAULT, VISUAL]]
    cape.report.write_results(folder, outcome(space, A=A))
    return folder


def test_what_nilearn_fetched_is_read_and_nothing_is_downloaded(tmp_path, monkeypatch):
    """An invented parcellation under the names of nilearn's folder."""
    import nibabel

    folder, space = in_mni(tmp_path / "run"), example.brain()
    monkeypatch.setenv("NILEARN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("yeo_2011", "schaefer_2018", "smith_2009"):
        with pytest.raises(ConfigError, match=f"CAPE-E275 .*{name}"):
            cape.report.relabel(folder, name)
    grid, affine = np.zeros(space.shape, dtype=np.int16), np.asarray(space.affine).reshape(4, 4)
    both = labels.bundled(space).values[:, [DEFAULT, VISUAL]]
    grid[space.labels() > 0] = np.where(both.max(axis=1) > 0.3, 1 + both.argmax(axis=1), 0)
    schaefer = tmp_path / "data" / "schaefer_2018"
    schaefer.mkdir(parents=True)
    stem = "Schaefer2018_100Parcels_7Networks_order"
    nibabel.save(nibabel.Nifti1Image(grid, affine), schaefer / f"{stem}_FSLMNI152_2mm.nii.gz")
    table = "1\t7Networks_LH_Default_PFC_1\t0\t0\t0\t0\n2\t7Networks_RH_Vis_1\t0\t0\t0\t0\n"
    (schaefer / f"{stem}.txt").write_text(table)
    cape.report.relabel(folder, "schaefer_2018")
    rows = files.read_table(folder / "components.tsv")
    assert [row["label"] for row in rows] == ["default", "visual"]
    assert "Schaefer" in (folder / "index.html").read_text()
    # The same labels as a file of one's own, named by a list
    own = tmp_path / "parcels.nii.gz"
    nibabel.save(nibabel.Nifti1Image(grid, affine), own)
    names = tmp_path / "names.txt"
    names.write_text("first\nsecond\n")
    cape.report.relabel(folder, own, names)
    rows = files.read_table(folder / "components.tsv")
    assert [row["label"] for row in rows] == ["first", "second"]


def test_a_public_set_needs_a_grid_that_is_known_to_be_in_mni_space(result):
    with pytest.raises(ConfigError, match="CAPE-E276"):
        cape.report.relabel(result, "seitzman_2018")
