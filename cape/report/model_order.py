"""What the released spectrum says about the number of components; costs no budget."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.pca import MIN_GAP
from cape.forecast.rule import Separation
from cape.forecast.rules import rule_of
from cape.frozen import dataclass
from cape.report.confidence import above_edge
from cape.report.results import separation_of

MOST = 50
"""Largest number of components that can be asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelOrderHint:
    """A number of components to try, and what the present one is to be told.

    Attributes
    ----------
    suggested : int or None
        None where the spectrum carries no noise, so nothing tells its tail from signal.
    above : int
        Eigenvalues above the noise edge.
    gap, gap_ratio : int, float
        Where the largest drop is, and its size over the noise edge.
    clear_gap : bool
        It is large enough to count.
    requested, n_components : int
        Components of the settings, and those that the rank guard left.
    limit : int
        More components than this are noise.
    budget_text : str
        How many components the budget carries; empty if G is not known.
    doubtful : bool
        R is more than the noise allows, or clearly too small.
    """

    suggested: int | None = None
    above: int = 0
    gap: int = 0
    gap_ratio: float = 0.0
    clear_gap: bool = False
    requested: int
    n_components: int
    limit: int = 0
    budget_text: str = ""
    doubtful: bool = False

    @property
    def too_few(self) -> bool:
        return self.above > self.requested

    @property
    def too_many(self) -> bool:
        return self.suggested is not None and self.n_components > self.limit


def hint(
    eigenvalues: Array,
    *,
    edge: float,
    requested: int,
    n_components: int,
    g: float | None,
    kind: Separation = "temporal",
    prewhitened: bool = True,
) -> ModelOrderHint:
    """Return what the spectrum suggests.

    Parameters
    ----------
    eigenvalues : ndarray, shape (d,)
        Of the released subspace statistic.
    edge : float
        Top of the spectrum of the noise alone; 0 without noise.
    requested, n_components : int
        Components of the settings, and those that the rank guard left.
    g : float or None
        Effective size of the run; None if it is not known.
    kind, prewhitened
        Which rule says how many components G carries: that of `cape budget`.
    """
    values = np.sort(eigenvalues)[::-1]
    if edge <= 0.0 or values.size < 3:
        return ModelOrderHint(requested=requested, n_components=n_components)
    above = above_edge(values, edge)
    last = min(MOST, values.size - 1)
    drops = (values[:last] - values[1 : last + 1]) / edge
    gap = int(np.argmax(drops)) + 1
    clear_gap = bool(drops[gap - 1] >= MIN_GAP)
    # A projector of each subject holds `requested` directions, so a run that asks for too few can
    # only say "at least": then all eigenvalues above the edge count.
    by_edge = above > requested or not clear_gap
    most = limit = max(above, gap) if clear_gap else above
    budget_text = ""
    if g is not None:
        rule = rule_of(kind, requested, prewhitened=prewhitened)
        budget_text = rule.largest_text(g)
        most = rule.largest_components(g)
        # What real data carried (spatial) is shown, but only the spectrum says what is noise.
        limit = min(limit, most) if kind == "temporal" else limit
    return ModelOrderHint(
        suggested=max(2, min(MOST, above if by_edge else gap)),
        above=above,
        gap=gap,
        gap_ratio=float(drops[gap - 1]),
        clear_gap=clear_gap,
        requested=requested,
        n_components=n_components,
        limit=limit,
        budget_text=budget_text,
        doubtful=above > requested or n_components > min(limit, most),
    )


def hint_of(
    eigenvalues: Array,
    settings: Mapping[str, object],
    *,
    edge: float,
    n_components: int,
    g: float | None,
) -> ModelOrderHint:
    """Return the hint of a run by its settings."""
    return hint(
        eigenvalues,
        edge=edge,
        requested=int(str(settings.get("n_components", n_components))),
        n_components=n_components,
        g=g,
        kind=separation_of(settings),
        prewhitened=is_prewhitened(settings),
    )


def is_prewhitened(settings: Mapping[str, object]) -> bool:
    """Tell which thresholds hold: those of the shipped default, as in `cape budget`, or the old."""
    return settings.get("prewhiten", "ar1") != "none"
