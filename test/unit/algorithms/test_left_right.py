"""Left and right of a brain: kernel, mirror, test; on the 10 mm mask unless said."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from cape.algorithms import kernel, left_right
from cape.algorithms.left_right import Null
from cape.algorithms.linalg import smat
from cape.algorithms.spatial import SpatialIca, leading, spatial_ica
from cape.computations import load
from cape.computations.capegica import choose_n_basis
from cape.computations.ica.mirror import midline_of, mirror_of, null_of, overlap
from cape.data.space import mask_space
from cape.errors import ConfigError
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import public_basis, widest_basis

D, R = 64, 15


def config(name: str = "capegica", **given: object):
    base = {"epsilon": 1.0, "delta": 1e-5, "mask": "MNI152-10mm"}
    return load(name).config.from_input({**base, "n_components": R, **given})


@pytest.fixture(scope="module")
def space() -> FeatureSpace:
    return mask_space(config())


@pytest.fixture(scope="module")
def mirror(space):
    return mirror_of(config(), space, D)


def goe(rng: np.random.Generator, std: float, d: int = D) -> np.ndarray:
    return smat(std * rng.standard_normal(d * (d + 1) // 2))


def sphere(shift: float, edge: int = 13) -> FeatureSpace:
    """Return a ball of 60 mm on 10 mm voxels whose centres are `shift` mm off the midplane."""
    affine = np.diag([10.0, 10.0, 10.0, 1.0])
    affine[:3, 3] = [shift - 10.0 * (edge // 2), -60.0, -60.0]
    places = np.indices((edge,) * 3).reshape(3, -1).T @ affine[:3, :3].T + affine[:3, 3]
    inside = (np.linalg.norm(places, axis=1) <= 57.0).reshape((edge,) * 3)
    return FeatureSpace.of_labels("mask", inside.astype(np.int32), affine)


# -- the wide kernel -------------------------------------------------------------------------------


def test_without_noise_the_basis_is_as_fine_as_the_volume_of_a_mask_allows(space) -> None:
    """With 300 directions neighbouring slabs of voxels were one map, at any number of people."""
    open_run = config(private=False, epsilon=0.0)
    ball = sphere(0.0)  # .9 litres
    assert widest_basis(resolve(open_run), space) == 600
    assert choose_n_basis(open_run, space, math.inf) == 600
    # A small mask has no 600 directions above rounding.
    assert widest_basis(resolve(open_run), ball) == choose_n_basis(open_run, ball, math.inf) == 300
    assert public_basis(resolve(open_run), ball, 300).shape[1] == 300
    # Private runs have the basis that claims were measured in, and the owner's number is kept.
    assert widest_basis(resolve(config()), space) == 300
    assert choose_n_basis(config(), space, 1e6) == 300
    assert widest_basis(resolve(config(private=False, epsilon=0.0, n_basis=700)), space) == 700
    atlas = config(private=False, epsilon=0.0, feature_space="atlas")
    assert resolve(atlas).widest == 300


def test_other_models_and_images_keep_their_kernels(space) -> None:
    template = config("capedualreg")
    assert widest_basis(resolve(config()), space) == 300
    assert widest_basis(resolve(template), space) == 80
    B = public_basis(resolve(template), space, 30)
    place = np.argwhere(space.labels() > 0) * 10.0
    K = np.exp(-((place[:, None] - place[None]) ** 2).sum(-1) / (2 * 12.0**2))
    values = np.einsum("ij,ij->j", B, K @ B)
    assert np.linalg.norm(K @ B - B * values) < 1e-6 * values[-1]


def test_a_part_of_a_brain_gets_a_narrower_kernel_and_too_many_directions_an_error() -> None:
    inside = np.ones((5, 5, 5), dtype=bool)
    assert kernel.spatial_sigma(inside, (8.0,) * 3) == pytest.approx(10.0)
    with pytest.raises(ConfigError, match="n_basis=1700"):
        kernel.kernel_mask(mask_space(config()).labels() > 0, (10.0,) * 3, 1700, 30.0)


# -- the mirror ------------------------------------------------------------------------------------


def test_the_mirror_is_orthogonal_symmetric_and_keeps_what_is_the_same_everywhere(space, mirror):
    J, one = mirror.J, public_basis(resolve(config()), space, D).T @ np.ones(space.n_features)
    assert np.abs(J @ J - np.eye(D)).max() < 1e-13
    assert np.abs(J - J.T).max() < 1e-14
    assert one @ J @ one / (one @ one) > 0.999
    # x itself is odd.
    B = public_basis(resolve(config()), space, D)
    x = B.T @ (np.argwhere(space.labels() > 0)[:, 0] * 10.0 + space.affine[3])
    assert x @ J @ x / (x @ x) < -0.99


def test_noise_moves_the_statistic_by_exactly_its_planned_deviation(mirror) -> None:
    # False alarm: the deviation of 600 draws is off by 12 % (4 of its errors) once in 10,000 runs.
    rng, std = np.random.default_rng(0), np.sqrt(2.0 * R) / 100.0
    T = [np.sum(mirror.J * goe(rng, std)) for _ in range(600)]
    assert np.std(T) == pytest.approx(np.sqrt(2.0 * R * D) / 100.0, rel=0.12)
    found = left_right.left_right(
        np.zeros((D, D)), mirror.J, Null(mean=-1.0, std=0.0),
        noise_std=std, n_subjects=9, n_components=R,
    )  # fmt: skip
    borders = left_right.BORDERS * R
    assert found.z == pytest.approx(1.0 / np.hypot(np.sqrt(2.0 * R * D) / 100.0, borders))


def test_noise_with_sharp_borders_is_no_brain_however_many_take_part(mirror) -> None:
    """People whose blocks changed places lie up to .046 above smooth noise: one in 1,008 had z 4.4.

    With more people and a larger G each of these runs would have been called a brain.
    """
    null, R = Null(mean=0.23 * 18, std=0.03 * 18), 18

    def verdict(statistic: float, n_subjects: int, G: float) -> str:
        F = mirror.J * statistic * R / np.sum(mirror.J**2)
        return left_right.left_right(
            F, mirror.J, null, noise_std=np.sqrt(2.0 * R) / G, n_subjects=n_subjects, n_components=R
        ).verdict

    for n_subjects, G in ((20, 400.0), (200, 4000.0), (100_000, 1e6)):
        assert verdict(0.23 + 0.046, n_subjects, G) != "brain"
        assert verdict(0.23 + 0.28, n_subjects, G) == "brain"


def test_a_grid_that_is_not_symmetric_a_file_and_a_tilted_grid() -> None:
    own = config(mask="file")
    for shift in (0.0, 2.5, 5.0):  # the plane through voxels, off them, between them
        assert midline_of(config(mask="file", midline_x="0"), sphere(shift)) == 0.0
        assert midline_of(own, sphere(shift)) == pytest.approx(0.0, abs=2.6)
    half = sphere(0.0)
    labels = half.labels()
    labels[8:] = 0  # a quarter of a ball: no plane can be found, and few voxels have a partner
    labels[:, :6] = 0
    part = FeatureSpace.of_labels("mask", labels, np.array(half.affine).reshape(4, 4))
    assert midline_of(own, part) is None or overlap(part.labels() > 0, 7) >= 0.9
    far = FeatureSpace.of_labels(
        "mask", np.where(np.indices((13,) * 3)[0] > 7, half.labels(), 0),
        np.array(half.affine).reshape(4, 4),
    )  # fmt: skip
    assert midline_of(config(mask="file", midline_x="0"), far) is None
    tilted = np.array(half.affine).reshape(4, 4)
    tilted[1, 0] = 3.0
    assert midline_of(own, FeatureSpace.of_labels("mask", half.labels(), tilted)) is None
    with pytest.raises(ConfigError, match="midline_x"):
        config(midline_x="left")


def test_the_mirror_of_an_atlas_swaps_its_pairs_and_noise_stays_below_brains() -> None:
    mask = mask_space(config())
    affine = np.array(mask.affine).reshape(4, 4)
    inside = mask.labels() > 0
    place = np.argwhere(inside) @ affine[:3, :3].T + affine[:3, 3]
    cell = np.floor(np.c_[np.abs(place[:, 0]), place[:, 1] + 110, place[:, 2] + 80] / 36.0)
    labels = np.zeros(inside.shape, np.int32)
    labels[inside] = 1 + 2 * (cell.astype(int) @ [1, 10, 100]) + (place[:, 0] > 0)
    # What lies on one side alone is no parcel here.
    present, both = set(np.unique(labels)), []
    for label in sorted(present):
        if label % 2 == 1 and label + 1 in present:
            both.append((int(label), int(label) + 1))
    labels[~np.isin(labels, np.array(both).ravel())] = 0
    atlas = FeatureSpace.of_labels("atlas", labels, affine)
    text = ",".join(f"{a}-{b}" for a, b in both[:-1])  # the last two parcels stay without a partner
    known = {"feature_space": "atlas", "atlas": "atlas.nii.gz", "n_components": 10}
    given = config(basis="none", label_pairs=text, **known)
    J = mirror_of(given, atlas, atlas.n_features)
    assert np.array_equal(J.J @ J.J, np.eye(atlas.n_features))
    assert np.sum(J.weighed**2) == 2 * (len(both) - 1)
    null = null_of(given, atlas, atlas.n_features, J, 10)
    assert -0.2 < null.mean / 10 < 0.3  # two-sided networks are near .7 (docs/choosing.md)
    assert 0.0 < null.std / 10 < 0.15
    # Without names the places tell, where it is known what x = 0 is.
    assert mirror_of(config(**known), atlas, 9) is None
    placed = replace(atlas, template_space="MNI152NLin6Asym")
    by_place = mirror_of(config(basis="none", **known), placed, atlas.n_features)
    assert np.sum(by_place.weighed**2) == 2 * len(both)
    # The smooth directions of the kernel over the centres have the same mirror.
    smooth = config(**known)
    B = public_basis(resolve(smooth), placed, 20)
    np.testing.assert_allclose(B.T @ B, np.eye(20), atol=1e-10)
    within = mirror_of(smooth, placed, 20)
    np.testing.assert_allclose(within.J @ within.J, np.eye(20), atol=1e-10)
    np.testing.assert_allclose(within.weighed, B.T @ by_place.weighed @ B, atol=0.05)
    # Even and odd patterns of a symmetric atlas are even and odd directions.
    assert np.mean(np.abs(np.abs(np.linalg.eigvalsh(within.weighed)) - 1.0) < 0.05) > 0.8
    assert null_of(smooth, placed, 20, within, 10).mean / 10 < 0.4
    for wrong in ("1", "1-2,2-3", "a-b", "1-2-3"):
        with pytest.raises(ConfigError, match="label_pairs"):
            config(label_pairs=wrong)


@pytest.fixture(scope="module")
def null(space) -> Null:
    return null_of(config(), space, D, mirror_of(config(), space, D), R)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "low", "high"), [
    ("both sides, one time course", 10.0, np.inf),
    ("both sides, two time courses", -np.inf, -3.0),
    ("left only", -np.inf, -1.0),
])  # fmt: skip
def test_only_networks_of_both_sides_are_a_brain(space, mirror, null, kind, low, high) -> None:
    """15 blobs of 15 mm over smooth noise at G 100; z is 18, -8 and -5 on the design's subjects."""
    affine, inside = np.array(space.affine).reshape(4, 4), space.labels() > 0
    place = np.argwhere(inside) @ affine[:3, :3].T + affine[:3, 3]
    rng = np.random.default_rng(11)
    right = place[place[:, 0] > 15.0]
    centres = right[rng.choice(len(right), R, replace=False)]

    def blobs(sign: float) -> np.ndarray:
        near = ((place[:, None] - centres * (sign, 1, 1)) ** 2).sum(-1)
        return np.exp(-near / (2 * 15.0**2))

    B, field = (
        public_basis(resolve(config()), space, D),
        left_right.voxel_fields(inside, (10.0,) * 3, 11.0),
    )
    T = []
    for _ in range(12):
        first, second = rng.standard_normal((2, R, 120))
        other = {"both sides, one time course": first, "both sides, two time courses": second}
        X = blobs(-1.0) @ first + 0.4 * field(rng, 120)
        if kind in other:
            X += blobs(1.0) @ other[kind]
        U = np.linalg.svd(B.T @ left_right._cleaned(X, global_signal=True))[0][:, :R]
        T.append(np.sum(U * (mirror.weighed @ U)))
    spread = np.hypot(np.sqrt(2 * R) / 100 * np.linalg.norm(mirror.weighed), null.std / np.sqrt(12))
    # Without the draw of privacy's noise, of deviation 1 in units of z.
    assert low < (np.mean(T) - null.mean) / spread < high


def test_voxels_without_a_partner_count_less_in_the_test() -> None:
    whole = sphere(0.0)
    labels = whole.labels()
    labels[9:, 7:] = 0  # right, anterior: public, as every mask
    part = FeatureSpace.of_labels("mask", labels, np.array(whole.affine).reshape(4, 4))
    given = config(mask="file", midline_x="0")
    assert 0.5 < overlap(part.labels() > 0, 12) < 0.95
    both, fewer = (mirror_of(given, space, 40) for space in (whole, part))
    for mirror in (both, fewer):
        assert np.abs(mirror.J @ mirror.J - np.eye(40)).max() < 1e-12
    sizes = [np.linalg.norm(m.weighed) / np.linalg.norm(m.J) for m in (both, fewer)]
    assert sizes[0] > 0.99
    assert sizes[1] < 0.97


@pytest.mark.slow
def test_a_fine_mask_has_the_mirror_of_its_nodes() -> None:
    """Above 70,000 voxels the basis is interpolated and never held whole."""
    affine = np.diag([2.0, 2.0, 2.0, 1.0])
    affine[:3, 3] = [-56.0, -56.0, -56.0]
    places = np.indices((57,) * 3) * 2.0 - 56.0
    ball = np.linalg.norm(places, axis=0) <= 55.0
    assert ball.sum() > 70_000
    fine = FeatureSpace.of_labels("mask", ball.astype(np.int32), affine)
    given = config(mask="file", midline_x="0")
    B, mirror = public_basis(resolve(given), fine, 40), mirror_of(given, fine, 40)
    assert not isinstance(B, np.ndarray)
    assert np.abs(mirror.J @ mirror.J - np.eye(40)).max() < 1e-12
    x = B.adjoint(places[0][ball][:, None])[:, 0]
    one = B.adjoint(np.ones((int(ball.sum()), 1)))[:, 0]
    assert x @ mirror.J @ x / (x @ x) < -0.99
    assert one @ mirror.J @ one / (one @ one) > 0.99


# -- maps ------------------------------------------------------------------------------------------


def planted(space: FeatureSpace, n: int = 6) -> np.ndarray:
    """Return blobs and their mirror images (D, n), and the last one on the left alone."""
    affine = np.array(space.affine).reshape(4, 4)
    place = np.argwhere(space.labels() > 0) @ affine[:3, :3].T + affine[:3, 3]
    rng = np.random.default_rng(5)
    maps = []
    for k in range(n):
        centre = rng.uniform((15, -35, -35), (35, 35, 35))
        sides = [centre * (-1, 1, 1)] + ([centre] if k < n - 1 else [])
        maps.append(sum(np.exp(-((place - c) ** 2).sum(1) / (2 * 12.0**2)) for c in sides))
    return np.stack(maps, axis=1)


def mean_projector(space: FeatureSpace, n_basis: int, T: int = 60) -> np.ndarray:
    B, A = public_basis(resolve(config(mask="file")), space, n_basis), planted(space)
    one = SpatialIca(n_components=A.shape[1], private=True)
    rng = np.random.default_rng(1)
    Y = [B.T @ A @ rng.standard_normal((A.shape[1], T)) for _ in range(10)]
    return smat(one.query(one.start(n_basis)).answer(np.array(Y, np.float32)).mean(axis=0))


def maps_of(space: FeatureSpace, n_basis: int = 40, *, mirrored: bool = True) -> np.ndarray:
    F, B = (
        mean_projector(space, n_basis),
        public_basis(resolve(config(mask="file")), space, n_basis),
    )
    if mirrored:
        F = left_right.mirrored(F, mirror_of(config(mask="file", midline_x="0"), space, n_basis).J)
    V = leading(F, 6)
    return B @ V @ spatial_ica(B @ V, score="skewness").mixing


def test_a_mask_shifted_by_half_a_voxel_gives_the_same_maps() -> None:
    here, there = sphere(0.0), sphere(5.0)
    volumes = []
    for space in (here, there):
        volume = np.full((13, 13, 13, 6), np.nan)
        volume[space.labels() > 0] = maps_of(space)
        volumes.append(volume)
    # Between two voxels of one grid lies one of the other.
    between = (volumes[0][1:] + volumes[0][:-1]) / 2.0
    shifted = volumes[1][:-1]
    both = ~np.isnan(between + shifted).any(axis=3)
    a, b = between[both], shifted[both]
    r = np.abs(np.corrcoef(a.T, b.T)[:6, 6:])
    assert both.sum() > 500
    matched = r[linear_sum_assignment(-r)]
    # Not 1: the ball has other rims on the two grids, and values between voxels are averages.
    assert matched.min() > 0.9
    assert matched.mean() > 0.94


def test_one_sided_maps_are_kept_where_nothing_is_mirrored() -> None:
    space = sphere(0.0)
    left = np.argwhere(space.labels() > 0)[:, 0] < 6

    def most_one_sided(maps: np.ndarray) -> float:
        """Return the largest share of a map's energy that lies on the left."""
        return float(((maps[left] ** 2).sum(0) / (maps**2).sum(0)).max())

    truth = most_one_sided(planted(space))
    assert truth > 0.9
    assert most_one_sided(maps_of(space, mirrored=False)) > 0.8
    assert most_one_sided(maps_of(space)) < 0.75


@pytest.mark.parametrize("g", [20.0, 50.0, 100.0, 400.0])
def test_exactly_r_maps_come_out_at_every_budget(g: float) -> None:
    """The guard left 7 to 12 of 15 on real brains; here 3 directions stand far above the rest."""
    F = np.diag([1.0] * 3 + [0.1] * (D - 3)) + goe(np.random.default_rng(2), np.sqrt(2 * R) / g)
    one = SpatialIca(n_components=R, private=True)
    rows, columns = np.triu_indices(D, 1)
    mean = np.concatenate([np.diagonal(F), np.sqrt(2.0) * F[rows, columns]])
    after = one.step(one.start(D), mean, np.sqrt(2 * R) / g)
    assert after.subspace.V.shape == (D, R)
    assert after.subspace.status == "unguarded"


def test_subjects_that_are_mirrored_first_have_even_and_odd_directions_only(mirror) -> None:
    assumed = SpatialIca(n_components=R, private=True, J=mirror.J)
    plain = SpatialIca(n_components=R, private=True)
    assert assumed.schedule(D) == plain.schedule(D)  # the same sensitivity
    Y = np.random.default_rng(3).standard_normal((6, D, 50)).astype(np.float32)
    # Of people who look symmetric, and of people who look the other way round: all alike.
    for lean in (2.0, -2.0):
        people = (Y + lean * (mirror.J @ Y)).astype(np.float32)
        for answer in assumed.query(assumed.start(D)).answer(people):
            P = smat(answer)
            assert np.abs(mirror.J @ P @ mirror.J - P).max() < 1e-6
            np.testing.assert_allclose(np.linalg.norm(answer), np.sqrt(R), rtol=1e-6)


# -- words --------------------------------------------------------------------------------------


def test_a_verdict_has_three_words() -> None:
    one = left_right.LeftRight(z=4.0, statistic=0.7, null=0.2, null_std=0.05)
    words = [replace(one, z=z).verdict for z in (4.0, 3.99, 2.0, 1.99, -8.0)]
    assert words == ["brain", "unclear", "unclear", "nothing", "nothing"]
