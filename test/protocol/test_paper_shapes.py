"""The shapes of the papers' figures: who beats whom, what rises, what falls, by stated margins.

The settings are those of the figures, with fewer repetitions; margins are well above the spread
between seeds, which are fixed.
"""

import functools

import numpy as np
import pytest

from support import tiny

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def lib():
    from figures_lib import capecca, dpdispca

    return dpdispca, capecca


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


def test_eigenvalues_by_size_lose_what_their_sign_would_keep(energy) -> None:
    found = energy("synthetic", epsilon=1.0)
    assert found["dpdispca"] > found["as_coded"] + 0.1


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
