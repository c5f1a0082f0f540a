"""`cape.compare`: run several computations and settings on the same arrays."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cape.algorithms.estimators import Array
from cape.errors import CapeError, ConfigError, SubjectsWarning
from cape.frozen import dataclass
from cape.protocol.messages import FeatureSpace
from cape.python.api import Consortium, Result
from cape.python.people import HOW_READ, pandas_for

TABLE_COLUMNS = (
    *("run", "computation", "status", "epsilon", "delta", "map_r", "q", "seconds"),
    "refusal",  # why a run has no result
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ComparedRun:
    """One row of the table: a run, its result and its cost."""

    name: str
    computation: str
    status: str  # how the run ended, or "refused"
    reason: str  # why it has this status
    seconds: float
    result: Result | None  # None if the run was refused

    @property
    def row(self) -> tuple[Any, ...]:
        r = self.result
        figures = (None,) * 4 if r is None else (r.epsilon, r.delta, r.map_correlation, r.q_ngi)
        refusal = self.reason if r is None else ""
        return (self.name, self.computation, self.status, *figures, self.seconds, refusal)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Comparison:
    """Runs on the same people, in the order in which they were given.

    Each epsilon is for one run; if several are published, the costs add up (`cape budget --check`).

    Attributes
    ----------
    runs : tuple of ComparedRun
        Each has `name`, `computation`, `status`, `reason`, `seconds` and `result`.

    Examples
    --------
    >>> table = cape.compare(sites, {"no noise": {**settings, "private": False}})
    >>> table["no noise"].status == "refused"
    False
    """

    runs: tuple[ComparedRun, ...]

    def __getitem__(self, name: str) -> ComparedRun:
        return {run.name: run for run in self.runs}[name]

    def __repr__(self) -> str:
        cells = [TABLE_COLUMNS, *(tuple(map(_cell, run.row)) for run in self.runs)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
        return "\n".join(line.rstrip() for line in lines)

    def to_dataframe(self) -> Any:
        """Return a pandas DataFrame, one row per run; ConfigError CAPE-E015 without pandas."""
        pd = pandas_for("to_dataframe")
        rows = [run.row for run in self.runs]
        return pd.DataFrame(rows, columns=list(TABLE_COLUMNS)).set_index("run")


def compare(
    sites: Mapping[str, Sequence[Any]] | Sequence[Any],
    runs: Mapping[str, Mapping[str, object]],
    *,
    space: FeatureSpace | None = None,
    truth: Array | None = None,
    seed: int | None = None,
    on_run: Callable[[ComparedRun], None] | None = None,
) -> Comparison:
    """Run `runs` one after the other on the same people, and return the table.

    A refused run is a row with its reason, and the others go on.

    Parameters
    ----------
    sites, space, truth
        As for `Consortium`; with `truth` the table has the mean |r| of matched maps and the
        recovery error q.
    runs : mapping
        From names to settings of docs/config.md, which may contain ``computation``.
    seed : int, optional; as for `Consortium.run`
    on_run : callable, optional; called with every run after it has ended

    Returns
    -------
    Comparison

    Raises
    ------
    ConfigError
        CAPE-E284: arrays that do not fit each other.

    Examples
    --------
    >>> table = cape.compare(sites, {"forgot epsilon": settings})
    >>> table["forgot epsilon"].reason[:9]
    'CAPE-E013'
    """
    if not isinstance(runs, Mapping) or not all(isinstance(x, Mapping) for x in runs.values()):
        do = "give {'first': {'n_components': 5}, 'second': {...}}."
        raise ConfigError("E284", problem="runs that are no settings by name", do=do)
    how = {n: given[n] for given in runs.values() for n in HOW_READ if n in given}
    consortium = Consortium(sites, space=space, truth=truth, settings=how)
    table: list[ComparedRun] = []
    for name, settings in runs.items():
        run_settings = dict(settings)
        computation = str(run_settings.get("computation", ""))
        began = time.perf_counter()
        result = None
        try:
            with warnings.catch_warnings():
                # Every run gives the same warnings on the people: show them once.
                if table:
                    warnings.simplefilter("ignore", SubjectsWarning)
                result = consortium.run(settings=run_settings, seed=seed)
            status, reason = result.status, result.reason
        except CapeError as err:
            status, reason = "refused", str(err)
        seconds = time.perf_counter() - began
        table.append(
            ComparedRun(
                name=name,
                computation=computation if result is None else result.outcome.computation,
                status=status,
                reason=reason,
                seconds=seconds,
                result=result,
            )
        )
        if on_run is not None:
            on_run(table[-1])
    return Comparison(runs=tuple(table))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
