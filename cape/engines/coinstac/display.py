"""The result table of COINSTAC's application: what a run gives, in words and rounded numbers.

The application shows flat rows only: no lists, no truth values, no null.  It writes numbers from
1,000 on with an exponent, so whole ones travel as texts with a comma, and calls a table "Local"
unless its name says "Global".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cape.protocol.outcome import IcaOutcome, Outcome
from cape.report.consortium import components_of, results_of
from cape.report.maps import Component
from cape.report.results import MapResults

Scalar = str | int | float

# Rows of the two tables, in order, with their names; the compspec declares them.
SUMMARY: Final = {
    "status": "Result",
    "private": "Differentially private",
    "epsilon": "Epsilon of the whole run",
    "delta": "Delta",
    "n_sites": "Sites",
    "n_subjects": "Subjects",
    "computation": "Computation",
    "version": "Version",
}
MAPS_SUMMARY: Final = {"n_components": "Components", "rounds": "Rounds"}
COMPONENT: Final = {
    "verdict": "Verdict of its time courses",
    "expected_r": "Expected correlation with the map without noise",
    "share": "Share of retained variance",
    "peak": "Peak",
    "peak_z": "Peak z",
    "label": "Nearest network",
}
STATUS: Final = {
    "released": "the one planned release was made",
    "converged": "components were separated",
    "unconfirmed": "spatial components, which time courses did not confirm",
    "not_separated": "nothing was separated",
    "max_rounds": "all planned rounds were made",
    "not_judged": "all planned rounds were made; nothing tells whether sources were found",
    "budget_exhausted": "ended early: the privacy budget was used up",
    "diverged": "ended early: the solver left its safe range",
    "networks": "networks were found",
    "unclear": "unclear: the maps may be noise",
    "nothing_found": "nothing was found",
}
NOTHING: Final = "-"


def summary(outcome: Outcome) -> dict[str, Scalar]:
    """Return the rows that `SUMMARY` names, of a run with maps those of `MAPS_SUMMARY` too."""
    results = results_of(outcome)
    names = [*SUMMARY, *(MAPS_SUMMARY if isinstance(results, MapResults) else ())]
    rows = {name: shown(getattr(results, name)) for name in names}
    return {**rows, "status": STATUS.get(results.status, results.status)}


def tables(outcome: Outcome) -> dict[str, dict[str, Scalar]]:
    """Return one small table for each component, or for each row of the first released table."""
    if isinstance(outcome, IcaOutcome):
        return {f"Global {row.name}": _component(row) for row in components_of(outcome)}
    table = outcome.tables[0]
    # Columns of a table are named by its computation; the application shows names that it does not
    # know as they are.
    names = [name.replace("_", " ") for name in table.header]
    return {
        f"Global {names[0]} {row[0]}": dict(
            zip(names[1:], (shown(value) for value in row[1:]), strict=True)
        )
        for row in table.rows
    }


def shown(value: object) -> Scalar:
    """Return a value for reading: four digits, a dash for what is not known."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return float(f"{value:.4g}") if isinstance(value, float) else str(value)


def _component(row: Component) -> dict[str, Scalar]:
    where = (row.peak_x_mm, row.peak_y_mm, row.peak_z_mm)
    at = f"feature {row.peak_feature:,}"
    if None not in where:
        at = ", ".join(f"{x:g}" for x in where) + " mm"
    values: Mapping[str, object] = {name: getattr(row, name, None) for name in COMPONENT}
    return {name: shown(at if name == "peak" else value) for name, value in values.items()}
