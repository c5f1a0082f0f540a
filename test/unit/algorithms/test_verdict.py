"""The verdict of dithered rounds, and where their rounds begin."""

import numpy as np
import pytest

from cape.algorithms.estimators import NO_STEP
from cape.algorithms.linalg import polar, skew, skew_exp, svec
from cape.algorithms.pca import ProjectorPca, Subspace
from cape.algorithms.quasi_newton import QuasiNewton
from cape.algorithms.spatial import GATE_Z, MIN_SPREAD, gate_z, spatial_ica, spatial_start
from cape.algorithms.verdict import MIN_COMMON, MIN_MEAN_COMMON, OWN_Z, judge_run
from cape.algorithms.whitening import Whitener
from cape.lab.synthetic.generators import PRESETS, generate


def of(c: np.ndarray, information: float, **changes: object):
    """Judge a run whose pairs have the curvatures c (R (R - 1)/2,)."""
    R = round((1 + np.sqrt(1 + 8 * len(c))) / 2)
    known = {"n_components": R, "gate": True, "dither": 0.03, "sparse": range(R)}
    return judge_run(c * information, information, **(known | changes))


def test_curvature_and_z_are_those_of_all_pairs() -> None:
    c = np.array([0.1, 0.2, 0.3])
    found = of(c, 400.0)
    assert found.curvature == pytest.approx(0.2)
    assert found.z == pytest.approx(0.2 * np.sqrt(3 * 400.0))
    # Components 1, 2, 3 have the pairs (12, 13), (12, 23), (13, 23).
    assert found.component_curvature == pytest.approx((0.15, 0.2, 0.25))
    assert found.component_error == pytest.approx(1 / np.sqrt(2 * 400.0))
    assert found.ordered((3, -1, 2)).component_curvature == pytest.approx((0.25, 0.15, 0.2))


@pytest.mark.parametrize(
    ("gate", "dither", "least_c", "least_z"),
    [(True, 0.06, 0.065, 3.2), (True, 0.03, 0.065, 4.0), (False, 0.03, 0.12, 4.0)],
)
def test_a_run_is_confirmed_by_size_and_by_error_of_the_curvature(gate, dither, least_c, least_z):
    def status(c: float, z: float) -> str:
        information = (z / c) ** 2 / 45
        return of(np.full(45, c), information, gate=gate, dither=dither).status

    no = "unconfirmed" if gate else "not_separated"
    assert status(1.01 * least_c, 1.01 * least_z) == "converged"
    assert status(0.99 * least_c, 2.0 * least_z) == no
    assert status(2.0 * least_c, 0.99 * least_z) == no
    assert status(-2.0 * least_c, -9.0) == no


def test_with_a_shut_gate_sources_must_be_more_curved_than_what_whitening_left() -> None:
    """Smooth noise at G 170 once came out confirmed: c .136 and .142, z 8, residual .22."""
    c, information = np.full(190, 0.142), (8.6 / 0.142) ** 2 / 190
    for gate, residual, status in (
        (False, 0.22, "not_separated"),
        (False, 0.13, "converged"),
        (True, 0.22, "converged"),
    ):
        assert of(c, information, gate=gate, residual=residual).status == status


def test_with_a_shut_gate_subjects_must_have_enough_in_common() -> None:
    """Drifts at R 5, G 70 were once curved enough, c .23, with an overlap below .9."""
    # Where the gate is open the overlap of the run decides nothing: of 12 networks where 20 are
    # asked it is .77 at best, and none of them was ever confirmed below G 205.
    for dither, error, overlap, status in (
        (0.06, 0.063, 0.94, "not_separated"),
        (0.06, 0.063, 0.96, "converged"),
        (0.03, 0.036, 0.86, "not_separated"),
        (0.03, 0.036, 0.92, "converged"),
        (0.03, 0.026, 0.80, "converged"),
    ):
        information = 1.0 / (19 * error**2)
        known = {"dither": dither, "overlap": overlap}
        assert of(np.full(190, 0.3), information, gate=False, **known).status == status
        assert of(np.full(190, 0.3), information, gate=True, **known).status == "converged"


def test_components_beyond_the_networks_are_not_confirmed_by_their_partners() -> None:
    """12 of 20: the others have the curvature of their partners, c_i .06, and nothing of it is own.

    From G 300 on all 20 were once "confirmed".
    """
    own = np.where(np.arange(20) < 12, 0.1, 0.0)
    c = np.add.outer(own, own)[np.triu_indices(20, 1)]
    error = 0.1 * 18 / 19 / (1.01 * OWN_Z[True])
    found = of(c, 1.0 / (19 * error**2), sparse=())
    assert min(found.component_curvature) > 2 * found.component_error
    assert found.components == ("confirmed",) * 12 + ("not confirmed",) * 8
    assert found.confirmed == tuple(range(12))
    # Put into another order, each keeps its own word.
    assert found.ordered(range(20, 0, -1)).confirmed == tuple(range(8, 20))
    # At a large budget what partners lend is far above its error, and still not the own.
    found = of(c, 100.0 / (19 * error**2), sparse=())
    assert min(found.component_curvature) > 10 * found.component_error
    assert found.confirmed == tuple(range(12))


def test_at_small_budgets_sparse_maps_speak_for_themselves_and_time_for_the_run() -> None:
    own = np.where(np.arange(20) < 12, 0.1, 0.0)
    c = np.add.outer(own, own)[np.triu_indices(20, 1)]
    noisy = 1.0 / (19 * 0.08**2)
    assert of(c, noisy, sparse=range(1, 20)).components == ("not confirmed", *("confirmed",) * 19)
    nothing = of(c, noisy, sparse=())
    assert (nothing.status, set(nothing.components)) == ("unconfirmed", {"spatial set"})
    # Of a shut gate nothing was sparse, whatever is said.
    shut = of(0 * c, noisy, gate=False, sparse=range(20))
    assert (shut.status, set(shut.components)) == ("not_separated", {"not separated"})


@pytest.mark.parametrize("gate", [True, False])
def test_one_component_of_spikes_does_not_speak_for_the_others(gate: bool) -> None:
    """Moved heads, seed 7814 at G 600: 20 maps of noise confirmed by one direction of spikes."""
    own = np.where(np.arange(20) == 4, 1.3, 0.01)
    c = np.add.outer(own, own)[np.triu_indices(20, 1)]
    assert of(c, 1e4, gate=gate).confirmed == ()
    assert of(c + 0.1, 1e4, gate=gate).status == "converged"
    # Of two components there is nothing beside the pair.
    assert of(np.array([0.3]), 1e4, gate=gate).confirmed == (0, 1)


def test_networks_that_leaked_into_the_map_of_a_weak_component_do_not_make_it_common() -> None:
    """12 networks where 20 are asked, G 175: 4 of 17 confirmed maps were noise, r .29 to .45."""
    # The amplitude of noise is a tenth of a network's, so an angle of .2 rad fills its map with it.
    eigenvalues = np.r_[1.0, 1.0, 0.1, np.zeros(17)]
    released = Subspace(
        V=np.eye(20)[:, :3], eigenvalues=eigenvalues, edge=0.05, gap_ratio=0.0, noise_std=0.01,
        status="no_gap", record=NO_STEP,
    )  # fmt: skip
    U = np.diag([1.0, 1.0, 10.0])
    whitened = Whitener(U=U, look=2, gate=True, origin=np.eye(3), record=NO_STEP)
    solver = QuasiNewton(
        n_rounds=2, clips=(1.0,), step_limit=1.0, alpha_first=1.0, alpha_last=1.0, private=True,
    ).after(released, whitened)  # fmt: skip
    turn = skew_exp(skew(np.array([0.0, 0.2, 0.0]), 3))  # the first with the third
    map_of_it = np.linalg.inv(turn @ U)[:, 2]
    assert abs(map_of_it[0]) > 1.5 * abs(map_of_it[2])
    shares = solver._common(turn)
    assert shares is not None
    assert shares[2] < MIN_COMMON < shares[0]


@pytest.mark.parametrize("gate", [True, False])
def test_what_subjects_do_not_have_in_common_is_not_confirmed(gate: bool) -> None:
    """Maps of one's own had c .10 and z 27 at G 600: 60 of 60 confirmed, with q .50."""
    c, common = np.full(190, 0.3), np.full(20, MIN_COMMON - 0.01)
    assert of(c, 1e4, gate=gate, common=common).confirmed == ()
    common[3] = MIN_COMMON
    assert of(c, 1e4, gate=gate, common=common).confirmed == ()
    common[3] = MIN_MEAN_COMMON
    assert of(c, 1e4, gate=gate, common=common).confirmed == (3,)
    # As measured: all maps of one's own had .69 to .71 in common, networks .80.
    assert of(c, 1e4, gate=gate, common=np.full(20, 0.71)).confirmed == ()
    assert of(c, 1e4, gate=gate, common=np.full(20, 0.80)).confirmed == tuple(range(20))


def test_what_is_common_is_the_cosine_with_the_subjects_own_subspaces() -> None:
    """Two directions of all subjects, one of 60 % of them, one of nobody, seen through noise."""
    d, rng = 60, np.random.default_rng(5)
    mean = np.zeros((d, d))
    mean[:3, :3] = np.diag([1.0, 1.0, 0.6])
    estimator = ProjectorPca(n_components=4, private=True)
    noise_std = 0.02
    noise = noise_std * rng.standard_normal(d * (d + 1) // 2)
    released = estimator.step(estimator.start(d), svec(mean) + noise, noise_std)
    turn = released.V.T @ np.eye(d)[:, :3]  # the true directions, among the released ones
    found = released.common(turn)
    np.testing.assert_allclose(found, [1.0, 1.0, 0.6], atol=0.05)
    assert released.common(np.eye(4)[:, 3:])[0] < 0.2
    # Shares of a map that lies between them are those of its parts, whatever its length.
    assert released.common(5.0 * turn[:, :1] + 5.0 * turn[:, 2:])[0] == pytest.approx(0.8, abs=0.05)


def test_without_a_dithered_round_nothing_is_confirmed() -> None:
    found = judge_run(np.zeros(0), 0.0, n_components=1, gate=False, dither=0.03)
    assert (found.status, found.curvature, found.z) == ("not_separated", 0.0, 0.0)


# -- the start ------------------------------------------------------------------------------------


def test_sparse_maps_open_the_gate_and_rounds_begin_at_them() -> None:
    study = generate(PRESETS["paper"], n_subjects=1, seed=9106)
    V, mixing = np.linalg.qr(study.B.T @ study.A)
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    # The true whitener of sources of unit variance, and the same rotated: V'A to the identity.
    U = turn @ np.linalg.inv(mixing)
    start = spatial_start(study.B, V, U)
    assert start.gate
    np.testing.assert_allclose(start.W @ start.W.T, np.eye(20), atol=1e-12)
    # W U V'A should be a signed permutation; spatial ICA is near it.
    found = np.abs(start.W @ U @ V.T @ study.B.T @ study.A)
    assert np.mean(found.max(axis=1)) > 0.9
    again = spatial_start(study.B, V, U)
    np.testing.assert_array_equal(again.W, start.W)


def test_maps_with_one_side_are_found_by_skewness_and_maps_with_two_by_tanh() -> None:
    study = generate(PRESETS["realistic"], n_subjects=1, seed=9106)
    rng = np.random.default_rng(3)
    row, column = np.indices((30, 30)).reshape(2, -1) - 14.5
    for two_sided in (False, True):
        A = study.A.copy()
        for k, angle in enumerate(rng.uniform(0, 2 * np.pi, 20)):
            weight = np.abs(study.A[:, k]) / np.abs(study.A[:, k]).sum()
            across = np.cos(angle) * (row - weight @ row) + np.sin(angle) * (
                column - weight @ column
            )
            A[:, k] *= np.sign(across) if two_sided else 1.0
        # As noise of the release would turn it: the subspace is not quite that of the maps.
        V = np.linalg.qr(study.B.T @ A + 0.02 * rng.standard_normal((100, 20)))[0]
        U = np.linalg.inv(V.T @ study.B.T @ A)
        start = spatial_start(study.B, V, U)
        assert start.gate
        rotations = {
            score: spatial_ica(study.B @ V, score=score).mixing for score in ("tanh", "skewness")
        }
        taken = [
            score
            for score, mixing in rotations.items()
            if np.allclose(start.W, polar(((d := U @ mixing) / np.linalg.norm(d, axis=0)).T))
        ]
        assert taken == ["tanh" if two_sided else "skewness"]


def test_maps_of_noise_shut_the_gate() -> None:
    study = generate(PRESETS["paper"], n_subjects=1, seed=9106)
    rng = np.random.default_rng(1)
    for k in (3, 20):
        V = np.linalg.qr(rng.standard_normal((100, k)))[0]
        start = spatial_start(study.B, V, np.eye(k))
        assert not start.gate
        np.testing.assert_array_equal(start.W, np.eye(k))


def test_the_gate_asks_for_the_sparser_half_of_the_components() -> None:
    """12 networks where 20 are asked: the median of all lies at the border of the two kinds."""
    rng = np.random.default_rng(2)
    null = 3.7 + 0.9 * rng.standard_normal((20, 20))
    for n in (12, 8):
        networks = np.concatenate([np.full(n, 7.0), np.full(20 - n, 3.7)])
        rng.shuffle(networks)
        assert gate_z(networks, null) > GATE_Z
    assert gate_z(null[0], null[1:]) < GATE_Z
    # Surrogates that hardly differ are not believed to.
    assert gate_z(np.full(4, 1.0), np.zeros((20, 4))) == pytest.approx(1.0 / MIN_SPREAD)


def test_a_start_says_which_of_its_maps_are_sparse() -> None:
    study = generate(PRESETS["paper"], n_subjects=1, seed=9106, n_components=12)
    rng = np.random.default_rng(4)
    networks = study.B.T @ study.A
    beyond = rng.standard_normal((100, 8))
    V = np.linalg.qr(np.concatenate([networks / np.linalg.norm(networks, axis=0), beyond], 1))[0]
    start = spatial_start(study.B, V, np.eye(20))
    assert start.gate
    maps = study.B @ V @ start.W.T
    like = np.abs(np.corrcoef(maps.T, study.A.T)[:20, 20:]).max(axis=1)
    sparse = np.isin(np.arange(20), start.sparse)
    assert np.all(sparse[like > 0.8])
    assert np.count_nonzero(like > 0.8) >= 10
    assert np.count_nonzero(sparse) < 20
