"""Maps on a grid as they are drawn: where they are cut, on which side, at which threshold."""

import re
from pathlib import Path

import numpy as np
import pytest

import cape
from cape.report import brain, files, maps, plots
from cape.report.consortium import write_results
from support import report_example as example

pytest.importorskip("matplotlib")


def drawn(canvas: brain.Canvas, values: np.ndarray, place: np.ndarray, *, glass: bool = False):
    """Return what is painted of the planes, sagittal, coronal, axial, and all texts."""
    # Of each (up, right): red less blue, from -1 to 1; grey is 0.
    figure = brain.plots.new_figure(6.0, 2.0)
    axes = figure.add_axes((0, 0, 1, 1))
    if glass:
        brain.paint_glass(axes, canvas, values, 6.0)
    else:
        brain.paint_planes(axes, canvas, values, place, 6.0)
    (image,) = axes.images
    board = np.asarray(image.get_array(), dtype=np.float64) / 255.0
    ends = np.cumsum([canvas.grey.shape[k] * brain.PIXELS_PER_POINT for k in (1, 0, 0)])
    gap = (board.shape[1] - ends[-1]) // 3
    starts = [0, ends[0] + gap, ends[1] + 2 * gap]
    wide = [canvas.grey.shape[k] * brain.PIXELS_PER_POINT for k in (1, 0, 0)]
    signed = board[..., 0] - board[..., 2]
    planes = [signed[:, a : a + w] for a, w in zip(starts, wide, strict=True)]
    return planes, [text.get_text() for text in axes.texts]


def test_every_map_is_cut_through_its_largest_cluster_and_left_is_left() -> None:
    mask = np.ones((9, 10, 11), dtype=bool)
    affine = np.diag([4.0, 4.0, 4.0, 1.0])
    affine[:3, 3] = [-16.0, -20.0, -8.0]
    volume = np.zeros(mask.shape)
    volume[1, 7, 2] = -9.0  # x -12: left
    volume[5, 5, 5] = 1.9  # below the threshold
    place = brain.place_of(volume, mask, affine)
    assert place.tolist() == [-12.0, 8.0, 0.0]
    canvas = brain.canvas_of(mask, affine, mni=False)
    planes, texts = drawn(canvas, canvas.values(volume), place)
    assert {"x -12", "y 8", "z 0", "L", "R"} <= set(texts)
    for plane in planes:
        # Only the peak has a colour, which fades between its voxel and the next.
        assert plane.max() == 0.0 > plane.min()
        assert 2 < len(np.unique(plane)) < 40
    for plane in planes[1:]:
        at = np.argwhere(plane)[:, 1].mean()
        assert at < plane.shape[1] / 2, "left is drawn on the right"


def test_cuts_go_through_the_largest_cluster_where_much_brain_is_seen() -> None:
    """At the peak 23 of 62 maps had a plane of less than .4 of the brain, and some showed none."""
    axes = np.indices((21, 21, 21)) - 10.0
    mask = (axes**2).sum(axis=0) <= 100.0
    volume = np.zeros(mask.shape)
    volume[10, 10, 3] = 12.0  # the peak: a voxel by itself
    volume[2:8, 9:12, 10:13] = 3.0  # the largest cluster, from the rim on
    volume[2, 9:12, 10:13] = 4.0  # most of its mass is where hardly any brain is
    volume *= mask
    place = brain.place_of(volume, mask, np.eye(4))
    assert place.tolist() == [7.0, 10.0, 10.0]


@pytest.mark.parametrize("mm", [4, 10])
def test_no_edge_of_a_coarse_mask_is_cut_off_by_the_anatomy(mm: int) -> None:
    """Voxels of 10 mm stick out of the brain below them: half of them was missing at the edge."""
    pytest.importorskip("nilearn")
    image = files.load_image(
        Path(cape.__file__).parent / "space" / "masks" / f"MNI152-{mm}mm.nii.gz"
    )
    inside = np.asarray(image.dataobj) > 0
    canvas = brain.canvas_of(inside, image.affine, mni=True)
    assert canvas.grey.shape == canvas.inside.shape == tuple(map(len, canvas.places))
    for axis in range(3):
        for face in (0, -1):
            assert not np.take(canvas.inside, face, axis=axis).any(), "an outline that is open"


def test_a_mask_of_any_size_has_a_picture_of_bounded_size() -> None:
    pytest.importorskip("nilearn")
    canvas = brain.canvas_of(np.ones((3, 3, 3), dtype=bool), np.diag([1e7, 1e7, 1e7, 1]), mni=True)
    assert max(canvas.grey.shape) < 94 + 2 * brain.MAX_WIDENED + 10


def test_a_grid_stored_the_other_way_round_is_drawn_the_same() -> None:
    rng = np.random.default_rng(1)
    volume = rng.standard_normal((6, 7, 8)) * 3.0
    affine = np.diag([5.0, 5.0, 5.0, 1.0])
    flipped = affine @ np.diag([-1.0, 1.0, 1.0, 1.0])
    flipped[:3, 3] = affine[:3, 3] + [5.0 * 5, 0, 0]
    mask = np.ones(volume.shape, dtype=bool)
    one = brain.canvas_of(mask, affine, mni=False)
    two = brain.canvas_of(mask, flipped, mni=False)
    np.testing.assert_allclose(one.values(volume), two.values(volume[::-1]), atol=1e-9)


def test_values_change_between_voxels_and_not_between_parcels() -> None:
    """Voxels of 10 mm were drawn as squares over the anatomy; borders of parcels are borders."""
    volume = np.zeros((5, 5, 5))
    volume[2:] = 6.0
    mask, affine = np.ones(volume.shape, dtype=bool), np.diag([10.0, 10.0, 10.0, 1.0])
    drawn = {
        parcels: brain.canvas_of(mask, affine, mni=False, parcels=parcels).values(volume)
        for parcels in (False, True)
    }
    assert set(np.unique(drawn[True])) == {0.0, 6.0}
    middle = drawn[False][:, 10, 10]
    assert np.any((middle > 2.0) & (middle < 4.0))


def test_where_a_map_ends_its_voxels_go_on_and_nothing_is_drawn_outside() -> None:
    """Zeros outside of the mask would pull the rim of every map towards zero."""
    mask = np.zeros((6, 6, 6), dtype=bool)
    mask[1:5, 1:5, 1:5] = True
    canvas = brain.canvas_of(mask, np.diag([8.0, 8.0, 8.0, 1.0]), mni=False)
    drawn = canvas.values(np.where(mask, 4.0, 0.0))
    np.testing.assert_allclose(drawn[canvas.inside], 4.0, atol=1e-9)
    assert not drawn[~canvas.inside].any()


def test_a_glass_brain_shows_the_strongest_of_either_sign() -> None:
    mask = np.ones((5, 5, 5), dtype=bool)
    volume = np.zeros(mask.shape)
    volume[2, 2, 1], volume[2, 2, 3] = 4.0, -5.0
    canvas = brain.canvas_of(mask, np.diag([4.0, 4.0, 4.0, 1.0]), mni=False)
    planes, _ = drawn(canvas, canvas.values(volume), np.zeros(3), glass=True)
    assert [(plane.min() < 0.0, plane.max() > 0.0) for plane in planes] == [
        (True, True),
        (True, True),
        (True, False),
    ]


def test_the_figure_of_a_paper_is_written_twice_and_equal_results_give_equal_bytes(tmp_path):
    for name in ("one", "two"):
        write_results(tmp_path / name, example.outcome())
    for name in ("networks.pdf", "networks.svg"):
        first, second = ((tmp_path / run / name).read_bytes() for run in ("one", "two"))
        assert first == second
    # Of every map one image of its three planes, as they are; and the bar
    assert first.count(b"<image") == 3 + 1
    text = first.decode()
    for wanted in ("C01", "C03", "coloured from |z| 2.5"):
        assert re.search(rf">{re.escape(wanted)}", text), wanted
    assert (tmp_path / "one" / "networks.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("atlas", [False, True])
def test_the_size_of_a_map_is_the_volume_that_is_coloured(atlas) -> None:
    space = example.mask_space(atlas=atlas)
    z = np.zeros((space.n_features, 1))
    z[:2, 0], z[2, 0] = [3.0, -2.5], 0.0
    z = (z - z.mean()) / z.std()
    (row,) = maps.describe(z, space)
    strong = np.abs(z[:, 0]) >= plots.THRESHOLD
    labels = space.labels()
    each = [np.sum(labels == k) for k in np.unique(labels[labels > 0])] if atlas else None
    voxels = sum(n for n, s in zip(each, strong, strict=True) if s) if each else strong.sum()
    assert row.size_mm3 == voxels * 8.0**3


def test_both_sets_of_a_temporal_run_have_tables_of_the_same_columns(tmp_path) -> None:
    made = example.with_spatial_set(example.outcome())
    write_results(tmp_path, made)
    header = (tmp_path / "components.tsv").read_text().splitlines()[0]
    spatial = files.read_table(tmp_path / "spatial_components.tsv")
    assert list(spatial[0]) == header.split("\t")
    assert [row["name"] for row in spatial] == ["S01", "S02", "S03"]
    page = (tmp_path / "index.html").read_text()
    of_set = []
    for caption in ("All maps in a table", "The spatial set"):
        found = re.search(rf"<caption>{caption}</caption>\n<thead>(.*?)</thead>", page)
        assert found, caption
        columns = re.findall("<th[^>]*>(.*?)</th>", found[1])
        of_set.append(columns)
    temporal, spatial = of_set
    assert spatial[:2] == ["map", "how sure"] or spatial[:2] == ["map", "peak"]
    # A column that is empty in all rows is left out.
    assert [name for name in temporal if name in spatial] == spatial
    # The threshold stands beside the bar of each set.
    assert page.count('<div class="picture bar">') == 2
