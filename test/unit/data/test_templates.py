"""Template maps of a site's folder: read, checked, refused with a reason that stays at the site.

Belongs to `cape/data/templates.py`.
"""

import re

import nibabel as nib
import numpy as np
import pytest

from cape.algorithms.person_outcomes import courses
from cape.data import templates
from cape.data.templates import with_templates
from cape.errors import ConfigError, DataError
from cape.planning.public_maps import networks_of
from cape.protocol.messages import FeatureSpace

AFFINE = np.diag([8.0, 8.0, 8.0, 1.0])
LABELS = np.zeros((5, 6, 4), dtype=np.int32)
LABELS[1:4, 1:5, 1:3] = 1
SPACE = FeatureSpace.of_labels("mask", LABELS, AFFINE)
MAPS = np.random.default_rng(0).standard_normal((SPACE.n_features, 3))


def image(maps: np.ndarray = MAPS, affine: np.ndarray = AFFINE) -> nib.Nifti1Image:
    volume = np.zeros((*LABELS.shape, maps.shape[1]), dtype=np.float32)
    volume[LABELS > 0] = maps
    return nib.Nifti1Image(volume, affine)


def why_refused(path, space: FeatureSpace = SPACE, **how) -> str:
    with pytest.raises(DataError, match="E280 The templates at site B") as caught:
        with_templates(space, path, site="B", **how)
    assert caught.value.detail not in caught.value.public
    return caught.value.detail


def test_an_image_on_the_grid_gives_the_maps_at_the_voxels_of_the_mask(tmp_path) -> None:
    nib.save(image(), tmp_path / "templates.nii.gz")
    found = with_templates(SPACE, tmp_path, site="B")
    assert found.n_templates == 3
    assert np.allclose(found.templates(), MAPS, atol=1e-6)
    assert found.digest != SPACE.digest
    assert found.without_templates == SPACE.digest
    assert np.array_equal(found.labels(), SPACE.labels())


def test_an_image_stored_from_right_to_left_gives_the_same_maps(tmp_path) -> None:
    flipped = nib.Nifti1Image(
        np.asarray(image().dataobj)[::-1].copy(),
        AFFINE @ np.array([[-1, 0, 0, 4], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]),
    )  # fmt: skip
    nib.save(flipped, tmp_path / "templates.nii")
    assert np.allclose(with_templates(SPACE, tmp_path, site="B").templates(), MAPS, atol=1e-6)


@pytest.mark.parametrize("head", ["C01,C02,C03\n", ""])
def test_a_table_of_maps_may_have_a_header(tmp_path, head) -> None:
    rows = "\n".join(",".join(map(repr, row)) for row in MAPS.tolist())
    (tmp_path / "templates.csv").write_text(head + rows + "\n")
    matrix = FeatureSpace.of_matrix(len(MAPS))
    found = with_templates(matrix, tmp_path, site="B")
    assert found.digest == matrix.with_templates(MAPS).digest


def bad(name: str) -> np.ndarray:
    maps = MAPS.copy()
    if name == "nan":
        maps[3, 1] = np.nan
    if name == "constant":
        maps[:, 1] = 4.0
    if name == "twice":
        maps[:, 2] = 2 * maps[:, 0]
    return maps[:-1] if name == "short" else maps[:, :1] if name == "single" else maps


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nan", "NaN or infinite"),
        ("constant", "a constant map"),
        ("twice", "depend on each other"),
        ("short", "needed 24 features"),
        ("single", "2 maps or more"),
    ],
)
def test_maps_that_cannot_be_templates_are_refused(tmp_path, name, words) -> None:
    np.save(tmp_path / "templates.npy", bad(name))
    assert words in why_refused(tmp_path)


def test_no_file_another_grid_and_no_image_are_refused(tmp_path) -> None:
    assert "none of templates.nii.gz" in why_refused(tmp_path)
    shifted = AFFINE.copy()
    shifted[0, 3] = 1.0
    nib.save(image(affine=shifted), tmp_path / "templates.nii")
    assert "displaced by 1 mm" in why_refused(tmp_path)
    (tmp_path / "templates.nii.gz").write_bytes(b"no image")
    assert "cannot be used" in why_refused(tmp_path)


def test_an_image_of_templates_is_measured_before_it_is_unpacked(tmp_path) -> None:
    """What is 1 to 1000 when packed would be doubles of all of it."""
    import tracemalloc

    for shape in ((*SPACE.shape, 30000), (*SPACE.shape[:2], 30000, 3)):
        nib.save(nib.Nifti1Image(np.zeros(shape, np.uint8), AFFINE), tmp_path / "templates.nii.gz")
        tracemalloc.start()
        told = why_refused(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert re.search("at most|as wide as no head", told)
        assert peak < 2**23, (shape, peak)  # positions in one volume are 8 bytes each


def test_too_many_numbers_are_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(templates, "MAX_TEMPLATE_NUMBERS", 50)
    np.save(tmp_path / "templates.npy", MAPS)
    assert "coarser grid" in why_refused(tmp_path)


def test_the_maps_of_a_finished_run_are_templates_by_its_folder_or_their_file(tmp_path) -> None:
    (tmp_path / "out" / "consortium").mkdir(parents=True)
    maps = tmp_path / "out" / "consortium" / "group_maps.nii.gz"
    nib.save(image(), maps)
    wanted = SPACE.with_templates(MAPS.astype(np.float32)).digest
    for named in (maps, maps.parent, tmp_path / "out"):
        assert with_templates(SPACE, named, site="B").digest == wanted


def test_maps_of_another_grid_are_resampled_where_they_say_that_they_are_of_the_same_space(
    tmp_path,
) -> None:
    """Published templates come on grids of their own; a site's last bits make no other digest."""
    from cape.data.templates import _coarse

    fine = np.diag([4.0, 4.0, 4.0, 1.0])
    place = np.indices((10, 12, 8)).reshape(3, -1)
    ramps = (place * 4.0).reshape(3, 10, 12, 8).transpose(1, 2, 3, 0)
    of_mni = FeatureSpace.of_labels("mask", LABELS, AFFINE, "MNI152NLin6Asym")
    path = tmp_path / "tpl-MNI152NLin6Asym_networks.nii"
    nib.save(nib.Nifti1Image(ramps.astype(np.float32), fine), path)
    found = with_templates(of_mni, path, site="B").templates()
    here = np.argwhere(LABELS > 0) * 8.0
    assert np.allclose(found, here, atol=1e-2)
    assert np.array_equal(_coarse(found * (1 + 1e-12)), found)
    assert "mask" in why_refused(path)


def test_one_volume_is_no_set_of_maps(tmp_path) -> None:
    from cape.data.templates import number_of_maps

    nib.save(nib.Nifti1Image(np.zeros(LABELS.shape, np.float32), AFFINE), tmp_path / "one.nii")
    assert number_of_maps(tmp_path / "one.nii") == 0


@pytest.mark.parametrize("name", ["templates.csv", "templates.npy"])
def test_a_file_of_maps_is_read_up_to_a_bound(tmp_path, name, monkeypatch) -> None:
    """A table of any size was read whole into memory, before its numbers were counted."""
    for most in ("MAX_TEMPLATE_NUMBERS", "MAX_OWN_NUMBERS"):
        monkeypatch.setattr(templates, most, 20)
    path = tmp_path / name
    if path.suffix == ".npy":
        np.save(path, MAPS)
    else:
        path.write_text("\n".join(",".join(map(repr, row)) for row in MAPS.tolist()))
    told = why_refused(tmp_path, FeatureSpace.of_matrix(len(MAPS)))
    assert "more than 0 MiB, at most 20 numbers" in told
    assert templates.number_of_maps(tmp_path) == 0


def test_maps_that_stay_at_a_site_may_be_more_than_those_that_are_sent(tmp_path, monkeypatch):
    """53 maps at 4 mm were refused by the limit of a state, in which a comparison puts none."""
    monkeypatch.setattr(templates, "MAX_TEMPLATE_NUMBERS", 50)
    np.save(tmp_path / "templates.npy", MAPS)
    assert with_templates(SPACE, tmp_path, site="B", sent=False).n_templates == 3
    assert why_refused(tmp_path)


def test_maps_that_are_nearly_one_are_named() -> None:
    white = np.random.default_rng(1).standard_normal((SPACE.n_features, 4))
    near = white.copy()
    near[:, 3] = -white[:, 1] + 0.3 * white[:, 0]
    assert templates.alike(SPACE.with_templates(white)) == ""
    assert templates.alike(SPACE.with_templates(near)).startswith("maps 2 and 4 (r 0.9")


@pytest.mark.parametrize("name", ["atlas.tsv", "networks.tsv"])
def test_the_table_beside_the_maps_names_them_and_their_domains(tmp_path, name) -> None:
    maps, table = tmp_path / "atlas.nii.gz", tmp_path / name
    maps.touch()
    assert templates.named_maps(maps, 2) == ()
    table.write_text("index\tname\tDomain\n1\tIC 5\tvisual\n2\tIC 9\tdefault mode\n")
    assert templates.named_maps(maps, 2) == (("IC 5", "visual"), ("IC 9", "default mode"))
    assert networks_of(maps, 2) == '"IC 5" (visual), "IC 9" (default mode)'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name\nIC05\n", "1 rows for 2 maps"),
        ("network\nIC05\nIC09\n", "columns network"),
        ("name\tdomain\nIC05\nIC09\tx\n", "cannot be read"),
        ("name\tdomain\nIC05\tx, y\nIC09\tx\n", "domain x, y of IC05"),
    ],
)
def test_a_table_that_does_not_fit_the_maps_is_refused(tmp_path, text, words) -> None:
    (tmp_path / "atlas.tsv").write_text(text)
    (tmp_path / "atlas.nii.gz").touch()
    with pytest.raises(ConfigError, match="E012") as caught:
        networks_of(tmp_path / "atlas.nii.gz", 2)
    assert words in str(caught.value)


REGIONS = np.where(LABELS > 0, 7, 0)
REGIONS[1:3] *= 3  # labels 7 and 21
REGIONS[:, 1] = 0  # .. which do not cover the mask


def atlas(folder, affine: np.ndarray = AFFINE, values: np.ndarray = REGIONS):
    saved = nib.Nifti1Image(values.astype(np.int16), affine)
    saved.set_sform(affine, code="mni")
    nib.save(saved, folder / "mine.nii.gz")
    return folder / "mine.nii.gz"


def test_an_atlas_is_a_map_for_each_label_and_its_courses_are_means(tmp_path) -> None:
    """The lab's own atlas was no maps: `cape init --maps` asked for a 4-D image."""
    path = atlas(tmp_path)
    (tmp_path / "mine.tsv").write_text("index\tname\n7\tLeft, upper\n21\tRight\n")
    assert templates.number_of_maps(path) == 2
    assert networks_of(path, 2) == '"Left, upper", Right'
    maps = with_templates(SPACE, path, site="B").templates()
    inside = REGIONS[LABELS > 0]
    assert np.array_equal(maps, np.stack([inside == 7, inside == 21], axis=1))
    X = np.random.default_rng(1).standard_normal((SPACE.n_features, 9))
    assert np.allclose(courses(X, maps), [X[inside == n].mean(axis=0) for n in (7, 21)])
    # Finer, and from right to left: the nearest voxels are the same.
    flip = np.array([[-1, 0, 0, 9], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    finer = AFFINE @ np.diag([0.5, 0.5, 0.5, 1.0])
    finer[:3, 3] = -2.0
    doubled = REGIONS.repeat(2, 0).repeat(2, 1).repeat(2, 2)[::-1]
    path = atlas(tmp_path, finer @ flip, doubled)
    assert np.array_equal(with_templates(SPACE, path, site="B").templates(), maps)
    # Of parcels: the part of each that has the label.
    along = np.arange(len(LABELS))[:, None, None]
    parcels = FeatureSpace.of_labels("atlas", np.where(LABELS > 0, along, 0), AFFINE)
    parts = with_templates(parcels, path, site="B").templates()
    assert np.allclose(parts, [[0, 0.75], [0, 0.75], [0.75, 0]])


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_maps_that_add_up_to_a_constant_have_no_courses(tmp_path, kind) -> None:
    maps = np.random.default_rng(3).random((SPACE.n_features, 3))
    np.save(tmp_path / "templates.npy", (maps / maps.sum(axis=1, keepdims=True)).astype(kind))
    assert "add up to a constant" in why_refused(tmp_path, sent=False)
    assert with_templates(SPACE, tmp_path, site="B").n_templates == 3


def test_an_atlas_that_does_not_fit_is_refused(tmp_path) -> None:
    lost = REGIONS.copy()
    lost[0, 0, 0] = 40
    told = why_refused(atlas(tmp_path, values=lost))
    assert "no voxel of the features has label 40; take a finer grid" in told
    named = FeatureSpace.of_labels("mask", LABELS, AFFINE, "MNI152NLin2009cAsym")
    path = atlas(tmp_path).rename(tmp_path / "tpl-MNIPediatricAsym_dseg.nii.gz")
    told = why_refused(path, named)
    assert "an atlas of MNIPediatricAsym, but the features are of MNI152" in told
    halves = nib.Nifti1Image(REGIONS / 2.0, AFFINE)
    nib.save(halves, tmp_path / "halves.nii.gz")
    assert why_refused(tmp_path / "halves.nii.gz")
    assert templates.number_of_maps(tmp_path / "halves.nii.gz") == 0
