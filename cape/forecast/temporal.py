"""What the maps of a planned run will be worth, from public numbers only: the G rule.

Quality of the default algorithm depends on size and budget through one number,
G = M * mu * sqrt(h / S), the subjects times the privacy parameter, less what the noise for
assumed colluders costs.  The thresholds were measured on synthetic data (two generators, recovery
error q below 0.1); they are no promise for real data, and `verdict` says so.
Pure functions: nothing here looks at data, and nothing here decides about privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.privacy.accounting import gdp_epsilon

USABLE: Final[dict[int, float]] = {5: 65, 10: 95, 15: 140, 20: 180, 25: 250, 30: 345}
"""Components R -> smallest G with q < 0.1, base algorithm, measured; 180 at R = 20."""

PER_COMPONENT_ABOVE_30: Final = 12.0  # continues the measured slope, untested
REVISED: Final = 0.92  # the shipped default (temporal pre-whitening, other shares) needs less
BASE: Final = 1.05  # the base on data sets that were not used for tuning

PCA_SHARE: Final = 0.27
"""f_P, the share of mu^2 that the subspace release gets by default."""

BRAIN_ENERGY: Final[dict[int, float]] = {100: 0.72, 200: 0.81, 400: 0.90, 1000: 0.94}
"""d -> mean energy of network maps (Gaussian blobs of 9 mm) inside the 3-D cosine basis."""

IMAGE_ENERGY: Final[dict[int, float]] = {64: 0.922, 100: 0.979, 144: 0.995, 225: 0.999, 400: 1.0}
"""The same for the 2-D cosine basis and the maps of the synthetic generators, 30 x 30."""

USEFUL_ON_REAL_DATA: Final = 400.0
"""On real resting-state data no temporal component was seen to be useful below this G."""

MAX_COMPONENTS: Final = 50

LOSS_TO_WARN: Final = 0.25
"""Part of the maps' energy lost to noise; the best choice of d may cost half of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What to expect of a run, and what would help.

    Attributes
    ----------
    g : float
        G of the run; inf without noise.
    needed : float
        Smallest G for this number of components.
    usable : bool
        Whether `g` reaches it.
    largest_n_components : int
        Largest usable R at this G, 0 if none is.
    smallest_epsilon : float
        Smallest total epsilon for this number of components, all else equal.
    smallest_n_subjects : int
        Fewest subjects for this number of components, all else equal.
    map_energy : float
        Expected share of the maps' energy inside the released subspace.
    text : str
        One or two sentences for people.
    warnings : tuple of str
        Further findings.
    """

    g: float
    needed: float
    usable: bool
    largest_n_components: int
    smallest_epsilon: float
    smallest_n_subjects: int
    map_energy: float
    text: str
    warnings: tuple[str, ...]


def g_eff(*, n_subjects: int, mu: float, noise_shares: int, n_sites: int) -> float:
    """Return G = M * mu * sqrt(h / S).

    Parameters
    ----------
    n_subjects : int
        M, all subjects of the run.
    mu : float
        Gaussian-DP parameter of the whole run against the headline viewer.
    noise_shares : int
        h = t - S_C, noise shares that this viewer cannot subtract; 1 with ``noise = "local"``.
    n_sites : int
        S, noise shares in every sum.
    """
    return n_subjects * mu * math.sqrt(noise_shares / n_sites)


def usable(n_components: int, *, revised: bool = True) -> float:
    """Return the smallest G that lets `n_components` be recovered (q < 0.1, synthetic data).

    Linear between the measured numbers of components, constant below 5, 12 R above 30.
    ``revised`` is the shipped default; False the base algorithm without temporal pre-whitening.
    """
    if n_components < 1:
        raise ConfigError(
            "E149", got=n_components, allowed="2 to 50", do="choose a number of components."
        )
    scale = REVISED if revised else BASE
    known = sorted(USABLE)
    if n_components <= known[0]:
        return scale * USABLE[known[0]]
    if n_components > known[-1]:
        return scale * PER_COMPONENT_ABOVE_30 * n_components
    return scale * _interpolate(USABLE, n_components)


def largest_usable_components(g: float, *, revised: bool = True) -> int:
    """Return the largest R up to 50 that G is enough for, or 0."""
    fit = (r for r in range(MAX_COMPONENTS, 1, -1) if usable(r, revised=revised) <= g)
    return next(fit, 0)


def smallest_epsilon(
    *,
    n_components: int,
    n_subjects: int,
    n_sites: int,
    noise_shares: int,
    delta: float,
    revised: bool = True,
) -> float:
    """Return the smallest total epsilon at `delta` whose G is enough for `n_components`."""
    one = g_eff(n_subjects=n_subjects, mu=1.0, noise_shares=noise_shares, n_sites=n_sites)
    return gdp_epsilon(mu=usable(n_components, revised=revised) / one, delta=delta)


def energy_inside(n_basis: int, energies: Mapping[int, float] = BRAIN_ENERGY) -> float:
    """Return the share of the maps' energy that the first `n_basis` directions can hold.

    Linear between the measured sizes, through the origin below them, constant above.
    """
    known = sorted(energies)
    if n_basis >= known[-1]:
        return energies[known[-1]]
    return _interpolate({0: 0.0, **energies}, max(0, n_basis))


def map_energy(
    *,
    n_basis: int,
    n_components: int,
    g: float,
    energy: float,
    pca_share: float = PCA_SHARE,
) -> float:
    """Return E, the expected share of the maps' energy inside the released subspace.

    E = energy * (1 - R (d - R) / (f_P G^2)), not below 0; within .02 of measurement for G from
    275 on and d from 100 to 400.

    Parameters
    ----------
    n_basis, n_components : int
        d and R.
    g : float
        G of the run.
    energy : float
        What the basis can hold, see `energy_inside`; 1 without a basis.
    pca_share : float
        f_P, share of mu^2 of the subspace release.
    """
    lost = n_components * max(0, n_basis - n_components) / (pca_share * g * g)
    return max(0.0, energy * (1.0 - lost))


def choose_n_basis(
    *,
    n_components: int,
    g: float,
    limit: int = 1000,
    energies: Mapping[int, float] = BRAIN_ENERGY,
    pca_share: float = PCA_SHARE,
) -> int:
    """Return the size d of the public basis: the best of the measured sizes.

    Maximises energy(d) * (1 - R d / (f_P G^2)), so a small budget gets few, smooth directions.

    Parameters
    ----------
    n_components : int
        R; sizes of R or fewer are left out.
    g : float
        G of the run, inf without noise.
    limit : int
        Largest allowed size (`max_features`, and the number of features D).
    energies : mapping of int to float
        Measured sizes and what they hold.
    pca_share : float
        f_P.

    Raises
    ------
    ConfigError
        If `limit` is not above R.
    """
    if limit <= n_components:
        raise ConfigError(
            "E149",
            got=n_components,
            allowed=f"2 to {limit - 1}",
            do=f"it must be below the number of features ({limit}).",
        )
    sizes = [d for d in sorted(energies) if n_components < d <= limit] or [limit]
    cost = n_components / (pca_share * g * g)
    return max(sizes, key=lambda d: energy_inside(d, energies) * (1.0 - cost * d))


def verdict(
    *,
    n_subjects: int,
    n_sites: int,
    noise_shares: int,
    mu: float,
    delta: float,
    n_components: int,
    n_basis: int,
    energy: float,
    pca_share: float = PCA_SHARE,
    revised: bool = True,
) -> Verdict:
    """Return what a planned run can be expected to show.

    Parameters
    ----------
    n_subjects, n_sites, noise_shares, mu
        See `g_eff`; ``mu = inf`` is a run without noise.
    delta : float
        Total delta, for the smallest epsilon.
    n_components, n_basis, energy, pca_share
        See `map_energy`.
    revised : bool
        See `usable`.
    """
    g = g_eff(n_subjects=n_subjects, mu=mu, noise_shares=noise_shares, n_sites=n_sites)
    needed = usable(n_components, revised=revised)
    best = largest_usable_components(g, revised=revised)
    floor = 0.0
    if math.isfinite(g):
        floor = smallest_epsilon(
            n_components=n_components,
            n_subjects=n_subjects,
            n_sites=n_sites,
            noise_shares=noise_shares,
            delta=delta,
            revised=revised,
        )
    fewest = math.ceil(needed * n_subjects / g) if g > 0 else 0
    return Verdict(
        g=g,
        needed=needed,
        usable=g >= needed,
        largest_n_components=best,
        smallest_epsilon=floor,
        smallest_n_subjects=fewest,
        map_energy=map_energy(
            n_basis=n_basis, n_components=n_components, g=g, energy=energy, pca_share=pca_share
        ),
        text=_text(g, needed, best, floor, fewest),
        warnings=tuple(_warnings(g, n_components, n_basis, pca_share)),
    )


def _text(g: float, needed: float, best: int, floor: float, fewest: int) -> str:
    if math.isinf(g):
        return "No noise is added: the maps are as good as the data, and nobody is protected."
    if g >= needed:
        return f"Usable on synthetic data: G {g:.0f}, needed {needed:.0f}."
    fewer = f"n_components <= {best}, " if best else ""
    return (
        f"Maps will mostly show noise: G {g:.0f}, needed {needed:.0f}. Use {fewer}"
        f"at least {fewest} subjects, or epsilon >= {_round_up(floor)}."
    )


def _warnings(g: float, n_components: int, n_basis: int, pca_share: float) -> list[str]:
    found = []
    if g < USEFUL_ON_REAL_DATA:
        found.append(
            "On real resting-state data no useful temporal components were seen below "
            f"G {USEFUL_ON_REAL_DATA:.0f}."
        )
    most = LOSS_TO_WARN * pca_share * g * g / n_components
    if n_basis > max(most, n_components):
        found.append(
            f"A basis of {n_basis} loses more than {LOSS_TO_WARN:.0%} of the maps' energy to "
            f"noise; up to {most:.0f} would lose less, at a coarser resolution."
        )
    if n_components > max(USABLE):
        found.append(
            f"More than {max(USABLE)} components were never measured; the rule is a guess there."
        )
    return found


def _interpolate(table: Mapping[int, float], at: float) -> float:
    """Return the value of a piecewise linear table at a point inside its range."""
    known = sorted(table)
    right = next(x for x in known if x >= at)
    if right == at:
        return float(table[right])
    left = max(x for x in known if x < at)
    part = (at - left) / (right - left)
    return table[left] + part * (table[right] - table[left])


def _round_up(value: float) -> str:
    """Return `value` with three digits, rounded up: a smaller number would not be enough."""
    if value <= 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / step - 1e-9) * step:.6g}"
