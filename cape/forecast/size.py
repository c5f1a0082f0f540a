"""G, the effective size of a run: subjects times privacy parameter, less what colluders cost."""

from __future__ import annotations

import math

from cape.frozen import dataclass
from cape.privacy.accounting import gdp_epsilon, gdp_mu


def g_eff(*, n_subjects: int, mu: float, noise_shares: int, n_sites: int) -> float:
    """Return G = M * mu * sqrt(h / S).

    Parameters
    ----------
    n_subjects : int
        M, all subjects of the run.
    mu : float
        Gaussian-DP parameter of the whole run against the headline viewer; inf without noise.
    noise_shares : int
        h = t - S_C, noise shares that this viewer cannot subtract; 1 with ``noise = "local"``.
    n_sites : int
        S, noise shares in every sum.
    """
    # The sum carries S noise shares, and the viewer can subtract all but h of them.
    return n_subjects * mu * math.sqrt(noise_shares / n_sites)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSize:
    """Sites, subjects and noise shares of a plan (S, M, h), and its delta."""

    n_sites: int
    n_subjects: int
    noise_shares: int
    delta: float

    def g(self, epsilon: float) -> float:
        return self.g_of(gdp_mu(epsilon=epsilon, delta=self.delta))

    def g_of(self, mu: float) -> float:
        return g_eff(
            n_subjects=self.n_subjects, mu=mu, noise_shares=self.noise_shares, n_sites=self.n_sites
        )

    def epsilon_for(self, g: float) -> float:
        return gdp_epsilon(mu=g / self.g_of(1.0), delta=self.delta)
