"""The shapes of the papers' figures: who beats whom, what rises, what falls, by stated margins.

The settings are those of the figures, with fewer repetitions; margins are well above the spread
between seeds, which are fixed.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from support import tiny

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def lib():
    from figures_lib import capecca, dpdispca

    return dpdispca, capecca


# -- captured energy (paper 004) -----------------------------------------------------------------


@pytest.fixture(scope="module")
def energy(lib):
    """Return mean energies by method for changed settings, Covertype-like data, 3 seeds."""
    dpdispca, _ = lib

    @functools.cache
    def measured(data: str = "covtype-like", **changed: object) -> dict[str, float]:
        rows = [
            dpdispca.measure(dpdispca._point("epsilon", data, seed, **changed))
            for seed in range(3)
        ]  # fmt: skip
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}

    return measured


def test_energy_rises_with_epsilon_and_with_records(energy) -> None:
    by_epsilon = [energy(epsilon=e)["dpdispca"] for e in (0.1, 0.5, 1.0, 5.0)]
    assert np.all(np.diff(by_epsilon) > 0.03)
    by_records = [energy(n_records=n)["dpdispca"] for n in (1000, 10_000, 30_000, 60_000)]
    assert np.all(np.diff(by_records) > 0.05)


def test_energy_falls_with_sites_at_a_fixed_number_of_records(energy) -> None:
    found = [energy(n_sites=s, n_records=20_000) for s in (5, 10, 20, 50)]
    assert np.all(np.diff([f["dpdispca"] for f in found]) < -0.05)
    assert np.ptp([f["pooled"] for f in found]) < 0.01  # capePCA does not pay for more sites


def test_energy_rises_with_r_up_to_k_and_stays_then(energy) -> None:
    found = [energy(epsilon=0.5, rank_ratio=r)["dpdispca"] for r in (0.3, 0.6, 1.0, 2.0, 4.0)]
    assert found[0] < found[1] - 0.003
    assert found[1] < found[2] + 0.005
    assert found[2] > found[0] + 0.01
    assert abs(found[4] - found[3]) < 0.02


def test_eigenvalues_by_size_lose_what_their_sign_would_keep(energy) -> None:
    found = energy("synthetic", epsilon=1.0)
    assert found["dpdispca"] > found["as_coded"] + 0.1


# -- noise variances (Lemma 1, Prop. 1) ----------------------------------------------------------


@pytest.mark.parametrize("n_sites", [3, 5])
def test_cape_has_the_noise_of_pooled_data_and_s_times_less_than_conventional(n_sites) -> None:
    """Plans of whole runs at assumed_colluders=0: variance of the released mean, exact in S."""
    data = tiny.data_of(n_sites)
    n_subjects = sum(map(len, data.values()))

    def variance(n: int, **given: object) -> float:
        link = tiny.link_of(tiny.settings(**given), data if n > 1 else {"all": pooled})
        link.exchange()
        event = link._state.model.roster.plan[0]
        return float(event.noise_std(n, n_subjects)) ** 2

    pooled = np.concatenate(list(data.values()))
    cape = variance(n_sites, assumed_colluders=0)
    conventional = variance(n_sites, noise="local")
    at_one_place = variance(1, noise="local", min_sites=1)
    assert cape == pytest.approx(at_one_place, rel=1e-5)
    assert conventional / cape == pytest.approx(n_sites, rel=1e-5)


# -- canonical correlations (paper 003) ----------------------------------------------------------


@pytest.fixture(scope="module")
def errors(lib):
    """Return mean err_corr by method on the fMRI + EEG recipe, 12 seeds."""
    _, capecca = lib

    @functools.cache
    def measured(n_records: int, epsilon: float) -> dict[str, float]:
        rows = [
            capecca.measure(capecca._point("epsilon", "fmri-eeg", n_records, epsilon, 0.01, seed))
            for seed in range(12)
        ]  # fmt: skip
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}

    return measured


def test_cape_cca_approaches_the_non_private_one_as_epsilon_and_n_grow(errors) -> None:
    by_epsilon = [errors(1000, e) for e in (0.5, 1.0, 5.0)]
    gaps = [found["cape"] - found["non-private"] for found in by_epsilon]
    assert gaps[0] > gaps[1] + 0.02 > gaps[2] + 0.04
    assert gaps[2] < 0.003
    by_n = [errors(n, 0.5)["cape"] for n in (500, 2000, 5000)]
    assert by_n[0] > by_n[1] + 0.05 > by_n[2] + 0.07
