"""The result table of COINSTAC's application: results as words and rounded numbers.

The application shows flat rows only: no lists, booleans or null.  It writes numbers from 1,000 on
with an exponent, so integers are sent as text with a comma.  It calls a table "Local" unless its
name contains "Global".
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cape.protocol.outcome import ContrastOutcome, IcaOutcome, Outcome
from cape.report.comparison import comparison_of
from cape.report.consortium import components_of, results_of
from cape.report.maps import Component
from cape.report.results import ComparisonResults, MapResults, sentence

Scalar = str | int | float

# Rows of the two tables, in order, with the names that the compspec declares; ends of a run
DISPLAY_TEXTS: Final = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
SUMMARY: Final[dict[str, str]] = DISPLAY_TEXTS["summary"]
MAPS_SUMMARY: Final[dict[str, str]] = DISPLAY_TEXTS["maps_summary"]
COMPONENT: Final[dict[str, str]] = DISPLAY_TEXTS["component"]
EFFECT_ROWS: Final[dict[str, str]] = DISPLAY_TEXTS["effect"]
STATUS: Final[dict[str, str]] = DISPLAY_TEXTS["status"]
NO_VALUE: Final = "-"
MAX_EFFECT_TABLES: Final = 30


def summary(outcome: Outcome) -> dict[str, Scalar]:
    """Return the rows of `SUMMARY`, and of `MAPS_SUMMARY` for a run with maps."""
    results = results_of(outcome)
    names = [*SUMMARY, *(MAPS_SUMMARY if isinstance(results, MapResults) else ())]
    rows = {name: shown(getattr(results, name)) for name in names}
    said = STATUS.get(results.status, results.status)
    if isinstance(results, MapResults) and results.verdict is not None:
        # How many judged components passed, and what the maps are if none did
        said = results.ended if results.verdict.confirmed else f"{results.ended}: {said}"
    counted = isinstance(results, MapResults) and results.separation.counts
    if counted or isinstance(results, ComparisonResults):
        said = sentence(results)
    return {**rows, "status": said}


def unshown(outcome: Outcome, err: Exception) -> dict[str, Scalar]:
    """Return the rows of `SUMMARY` after an error in them, which is named without its text."""
    said = f"{outcome.status}; this table could not be made ({type(err).__name__}): see index.html"
    return {**dict.fromkeys(SUMMARY, NO_VALUE), "computation": outcome.computation, "status": said}


def tables(outcome: Outcome) -> dict[str, dict[str, Scalar]]:
    """Return one small table for each component, effect, or row of the first released table."""
    if isinstance(outcome, IcaOutcome):
        return {f"Global {row.name}": _component(row) for row in components_of(outcome)}
    if isinstance(outcome, ContrastOutcome):
        rows = comparison_of(outcome).effects
        shown_first = sorted(rows, key=lambda row: 2.0 if row.p is None else row.p)
        return {
            f"Global {row.outcome}, {row.contrast}": {
                name: shown(getattr(row, name)) for name in EFFECT_ROWS
            }
            for row in shown_first[:MAX_EFFECT_TABLES]
        }
    table = outcome.tables[0]
    # A computation names the columns of its tables; the application shows unknown names unchanged.
    names = [name.replace("_", " ") for name in table.header]
    return {
        f"Global {names[0]} {row[0]}": dict(
            zip(names[1:], (shown(value) for value in row[1:]), strict=True)
        )
        for row in table.rows
    }


def shown(value: object) -> Scalar:
    """Format a value: four digits, a dash for None."""
    if value is None:
        return NO_VALUE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return float(f"{value:.4g}") if isinstance(value, float) else str(value)


def _component(row: Component) -> dict[str, Scalar]:
    where = (row.peak_x_mm, row.peak_y_mm, row.peak_z_mm)
    at = row.peak_name or f"feature {row.peak_feature:,}"
    if None not in where:
        at = ", ".join(f"{x:g}" for x in where) + " mm"
    values: Mapping[str, object] = {name: getattr(row, name, None) for name in COMPONENT}
    return {name: shown(at if name == "peak" else value) for name, value in values.items()}
