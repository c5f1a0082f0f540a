"""What the released spectrum says about the number of components; costs no budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.pca import MIN_GAP
from cape.forecast.rule import Separation
from cape.forecast.rules import rule_of
from cape.frozen import dataclass
from cape.report.confidence import above_edge
from cape.report.methods import kind_of

MOST = 50
"""Largest number of components that can be asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """A number of components to try, and what to say about the present one.

    Attributes
    ----------
    suggested : int or None
        None where the spectrum carries no noise, so nothing tells its tail from signal.
    above : int
        Eigenvalues above the noise edge.
    sentences : tuple of str
        For people.
    warning : bool
        R is more than the noise allows, or clearly too small.
    """

    suggested: int | None
    above: int
    sentences: tuple[str, ...]
    warning: bool


def advise(
    eigenvalues: Array,
    *,
    edge: float,
    asked: int,
    kept: int,
    g: float | None,
    kind: Separation = "temporal",
    revised: bool = True,
) -> Advice:
    """Return what the spectrum suggests.

    A projector of each subject holds `asked` directions, so a run that asks for too few can only
    say "at least": then the eigenvalues above the edge count; else the largest gap does if it is
    clear, and the eigenvalues above the edge if not.

    Parameters
    ----------
    eigenvalues : ndarray, shape (d,)
        Of the released subspace statistic.
    edge : float
        Top of the spectrum of the noise alone; 0 without noise.
    asked, kept : int
        Components of the settings, and those that the rank guard left.
    g : float or None
        Effective size of the run; None if it is not known.
    kind, revised
        Which rule says how many components G carries: that of `cape budget`.
    """
    values = np.sort(eigenvalues)[::-1]
    if edge <= 0.0 or values.size < 3:
        text = "The spectrum carries no noise, so it has no noise edge to suggest a number from."
        return Advice(suggested=None, above=0, sentences=(text,), warning=False)
    above = above_edge(values, edge)
    last = min(MOST, values.size - 1)
    drops = (values[:last] - values[1 : last + 1]) / edge
    gap = int(np.argmax(drops)) + 1
    clear = bool(drops[gap - 1] >= MIN_GAP)
    low = above > asked
    suggested = max(2, min(MOST, above if low or not clear else gap))
    said = [_count(above), _gap(gap, float(drops[gap - 1])) if clear else NO_GAP]
    if low:
        said.append(
            f"That is more than the {asked} asked for: R is probably too small, at least "
            f"{suggested} is worth trying."
        )
    else:
        said.append(f"Suggested number of components: {suggested}.")
    most = limit = max(above, gap) if clear else above
    if g is not None:
        rule = rule_of(kind, asked, prewhitened=revised)
        said.append(rule.largest_text(g))
        most = rule.largest_components(g)
        # What real data carried (spatial) is told, but only the spectrum says what is noise.
        limit = min(limit, most) if kind == "temporal" else limit
    too_many = kept > limit
    if too_many:
        said.append(
            f"R = {kept} is more than the noise allows: the last components may be noise. "
            f"Use R = {max(2, limit)} or fewer, more subjects, or a larger epsilon."
        )
    said.append(
        "This reading is free, because the spectrum is released anyway; another run with another "
        "R costs its own budget."
    )
    doubtful = low or too_many or kept > most
    return Advice(suggested=suggested, above=above, sentences=tuple(said), warning=doubtful)


def of_results(
    results: Mapping[str, Any], settings: Mapping[str, Any], eigenvalues: Array
) -> Advice:
    """Return the advice from the files of a run."""
    kept = int(results["n_components"])
    return advise(
        eigenvalues,
        edge=float(results["noise_edge"] or 0.0),
        asked=int(settings.get("n_components", kept)),
        kept=kept,
        g=results["g_eff"],
        kind=kind_of(settings),
        revised=is_revised(settings),
    )


def is_revised(settings: Mapping[str, object]) -> bool:
    """Return whether the thresholds of the shipped default hold, as in `cape budget`."""
    return settings.get("prewhiten", "ar1") != "none"


NO_GAP = "No gap in it is clear."


def _count(above: int) -> str:
    if above == 1:
        return "1 eigenvalue stands above the noise edge."
    return f"{above} eigenvalues stand above the noise edge."


def _gap(position: int, ratio: float) -> str:
    return f"The largest gap comes after eigenvalue {position} ({ratio:.2g} times the noise edge)."
