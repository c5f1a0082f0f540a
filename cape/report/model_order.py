"""What the released spectrum says about the number of components; costs no budget."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.pca import MIN_GAP
from cape.forecast.rules import rule_of
from cape.frozen import dataclass
from cape.report.confidence import above_edge
from cape.report.results import separation_of

# Largest number of components that can be asked for
MOST = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelOrderHint:
    """A number of components to try, and what there is to say of the present one."""

    # None where the spectrum carries no noise: nothing tells its tail from signal.
    suggested: int | None = None
    above: int = 0  # eigenvalues above the noise edge
    gap: int = 0  # eigenvalues before the largest drop
    gap_ratio: float = 0.0  # of that drop and the edge
    clear_gap: bool = False
    requested: int  # in the settings
    n_components: int  # left by the rank guard
    limit: int = 0  # more are noise
    budget_text: str = ""
    doubtful: bool = False  # more than the noise allows, or clearly too few

    @property
    def too_few(self) -> bool:
        return self.above > self.requested

    @property
    def too_many(self) -> bool:
        return self.suggested is not None and self.n_components > self.limit


def hint(
    eigenvalues: Array,
    settings: Mapping[str, object],
    *,
    edge: float,
    n_components: int,
    g: float | None,
) -> ModelOrderHint:
    """Suggest by the spectrum (d,) of the released subspace statistic.

    `edge` is the top of the spectrum of the noise alone (0 without noise), `g` the effective size
    of the run, by which the rule of the model says how many components the budget carries.
    """
    requested = int(str(settings.get("n_components", n_components)))
    kind = separation_of(settings)
    values = np.sort(eigenvalues)[::-1]
    if edge <= 0.0 or values.size < 3:
        return ModelOrderHint(requested=requested, n_components=n_components)
    above = above_edge(values, edge)
    last = min(MOST, values.size - 1)
    # In units of the edge, so that the threshold is the one the rank guard uses.
    drops = (values[:last] - values[1 : last + 1]) / edge
    gap = int(np.argmax(drops)) + 1
    clear_gap = bool(drops[gap - 1] >= MIN_GAP)
    # A projector of each subject holds `requested` directions, so a run that asks for too few can
    # only say "at least": then all eigenvalues above the edge count.
    by_edge = above > requested or not clear_gap
    most = limit = max(above, gap) if clear_gap else above
    budget_text = ""
    if g is not None:
        rule = rule_of(kind, requested, prewhitened=is_prewhitened(settings))
        budget_text = rule.largest_text(g)
        most = rule.largest_components(g)
        # What real data carried (spatial) is shown, but only the spectrum says what is noise.
        limit = min(limit, most) if kind == "temporal" else limit
    return ModelOrderHint(
        # One component has nothing to be separated from.
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


def is_prewhitened(settings: Mapping[str, object]) -> bool:
    # Without prewhitening the thresholds that were measured before it hold.
    return settings.get("prewhiten", "ar1") != "none"
