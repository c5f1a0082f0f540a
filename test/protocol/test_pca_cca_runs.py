"""capepca, dpdispca and capecca in whole runs: each scheme against the others, and the truth."""

from typing import Any

import numpy as np
import pytest

from cape.algorithms.linalg import smat, svec
from cape.computations.tables.capecca import single_bounds
from cape.errors import CapeError, ConfigError, MessageError
from cape.lab.synthetic.generators import two_views
from cape.papers.algorithms.covariance import leading_factor
from cape.protocol.messages import FeatureSpace
from support import consortium

D, N_SITE, N_SITES = 12, 500, 4


def records(seed: int, n: int = N_SITE * N_SITES) -> np.ndarray:
    """Return n records in D dims, four strong directions, norm about 1."""
    rng = np.random.default_rng(seed)
    std = np.concatenate([np.linspace(1.0, 0.6, 4), np.full(D - 4, 0.2)])
    return rng.standard_normal((n, D)) * std / 2.0


def run_of(name: str, z: np.ndarray, **settings: Any) -> Any:
    """Play a run whose subjects are rows of z, split evenly over sites."""
    chosen = {"epsilon": 2.0, "delta": 1e-5, "min_timepoints": 1, **settings}
    n_sites = settings.get("min_sites", N_SITES)
    parts = np.array_split(z.astype(np.float32), n_sites)
    data = {f"local{s}": [row[:, None] for row in part] for s, part in enumerate(parts)}
    run = consortium.Consortium(name, data, **chosen)
    for party in run.parties.values():
        party.source.space = FeatureSpace.of_matrix(z.shape[1])
    return run.play()


def energy(run: Any, z: np.ndarray) -> float:
    moment = z.T @ z / len(z)
    best = float(np.sum(np.linalg.eigvalsh(moment)[-4:]))
    V = run.state.model.principal.V
    return float(np.sum(V * (moment @ V))) / best


def test_shared_noise_beats_full_noise_beats_one_site() -> None:
    """Over six data sets: one draw of the noise moves each of the four by up to .1."""
    # Parts leave out directions of noise, so whole moments under the same noise are no better.
    common = {"n_directions": 4, "norm_bound": 1.5, "epsilon": 0.4}
    schemes = {
        "cape": ("capepca", slice(None), {}),
        "full": ("capepca", slice(None), {"noise": "local"}),
        "part": ("dpdispca", slice(None), {"n_sent": 8}),
        "alone": ("capepca", slice(N_SITE), {"noise": "local", "min_sites": 1}),
    }
    mean = {
        scheme: np.mean(
            [
                energy(run_of(name, records(k)[some], **more, **common), records(k))
                for k in range(2, 8)
            ]
        )
        for scheme, (name, some, more) in schemes.items()
    }
    assert mean["cape"] > mean["full"] + 0.01
    assert abs(mean["full"] - mean["part"]) < 0.08
    assert min(mean["full"], mean["part"]) > mean["alone"] + 0.05
    assert mean["cape"] > 0.9


def test_a_site_sends_its_factor_and_the_aggregator_weighs_by_subjects() -> None:
    z = records(3)[: 3 * 200]
    run = run_of("dpdispca", z, n_sent=5, n_directions=2, norm_bound=1.5, epsilon=900.0)
    sent = run.sent[run.phases().index(("moment", 1))]
    parts = np.array_split(np.clip(z, -9, 9), N_SITES)
    expected = 0.0
    for site, part in zip(sorted(sent), parts, strict=True):
        values = sent[site].body.values
        assert values.shape == (D, 5)
        norms = np.linalg.norm(part, axis=1, keepdims=True)
        x = part / np.maximum(1.0, norms / 1.5) / 1.5
        P = leading_factor(x.T @ x / len(part), 5)
        # Six times the largest spread of an entry over 25 draws: an alarm below 1e-6 a run.
        np.testing.assert_allclose(values @ values.T, P @ P.T, atol=6e-3)
        expected = expected + values @ values.T * len(part) / len(z)
    found = run.state.model.principal.eigenvalues / 1.5**2
    np.testing.assert_allclose(found, np.linalg.eigvalsh(expected)[::-1], atol=1e-9)
    assert np.allclose(smat(svec(expected)), expected)


@pytest.mark.parametrize("shape", [(D, 4), (D - 1, 6), (0,)])
def test_a_factor_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    run = consortium.Consortium("dpdispca").until("moment")
    inbox = run.answers()
    inbox["local0"] = consortium.changed(inbox["local0"], values=np.ones(shape))
    with pytest.raises(MessageError, match="needed"):
        run.combine(inbox)


def test_canonical_correlations_come_near_the_truth_and_shared_noise_is_smaller() -> None:
    """Three honest shares of four sites: a third of the conventional variance, 91 entries."""
    study = two_views(5, n_records=8000, n_x=6, n_y=6, correlations=(0.8, 0.5))
    kinds = {"none": {"private": False}, "cape": {}, "conv": {"noise": "local"}}
    found = {
        name: run_of("capecca", study.records, epsilon=1.0, n_pairs=2, **more).state.model.canonical
        for name, more in kinds.items()
    }
    np.testing.assert_allclose(found["none"].correlations, study.correlations, atol=0.03)
    np.testing.assert_allclose(found["cape"].correlations, study.correlations, atol=0.12)
    errors = {
        name: np.linalg.norm(found[name].covariance - found["none"].covariance)
        for name in ("cape", "conv")
    }
    assert errors["conv"] / errors["cape"] == pytest.approx(np.sqrt(3.0), rel=0.25)
    assert found["conv"].noise_bound > found["cape"].noise_bound > found["none"].noise_bound == 0.0


def test_centred_on_the_ranges_nothing_is_paid_for_the_means() -> None:
    study = two_views(6, n_records=400, n_x=3, n_y=3, correlations=(0.8,))
    stds = {}
    for centre in ("released", "range"):
        run = run_of("capecca", study.records, centre=centre, n_pairs=1)
        (event,) = run.state.model.roster.plan
        stds[centre] = event.noise_std(N_SITES, 400)
    assert stds["released"] / stds["range"] == pytest.approx(1.25, rel=0.01)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"bounds": "4:18"}, "column:low:high"),
        ({"bounds": "4:90:18"}, "column:low:high"),
        ({"bounds": "4:1:2;4:1:3"}, "each column once"),
        ({"x_low": 5.0}, "below x_high"),
    ],
)
def test_impossible_ranges_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        consortium.Consortium("capecca", **settings)


@pytest.mark.parametrize(
    ("name", "settings", "text"),
    [
        ("capecca", {"n_pairs": 7}, "n_pairs=7: allowed 1 to 6"),
        ("capecca", {"n_features_x": 12}, "n_features_x=12: allowed 1 to 11"),
        ("capecca", {"bounds": "13:0:1"}, "bounds=13: allowed 1 to 12"),
        ("capepca", {"n_directions": 13}, "n_directions=13: allowed 1 to 12"),
        ("dpdispca", {"n_sent": 13}, "n_sent=13: allowed up to 12"),
        ("capepca", {"max_features": 11}, "features=12 exceeds the limit 11"),
    ],
)
def test_what_the_data_cannot_have_is_refused_in_join(name, settings, text) -> None:
    with pytest.raises(CapeError, match=text):
        consortium.Consortium(name, **settings).until("zero-sum")


def test_fewer_directions_sent_than_kept_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least n_directions = 5"):
        consortium.Consortium("dpdispca", n_directions=5, n_sent=4)


def test_ranges_of_single_columns_are_read() -> None:
    assert single_bounds(" 4:18:90; 7:0:30 ;") == {4: (18.0, 90.0), 7: (0.0, 30.0)}
