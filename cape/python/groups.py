"""`cape.compare_groups`: do two groups differ, from tables of the sites in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from cape.algorithms.estimators import Array
from cape.data.exclusions import PERSON
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.python.api import simulate_folder
from cape.report import files
from cape.report.comparison import Comparison, Effect, Tables
from cape.report.results import ComparisonFolder, read_folder
from cape.report.sentence import sentence

Columns = Mapping[str, Sequence[object] | Array]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GroupResult:
    """What a comparison released; nothing here belongs to a single person.

    Attributes
    ----------
    sentence : str
        What came out.
    comparison : Comparison of figures, or None
        The same in figures; None: a site refused a release.
    tables : Tables
        The rows of all files.
    private : bool
        Whether `epsilon` is promised: False without noise and with a seed.
    epsilon, delta : float
    folder : Path or None
        Of the consortium's files and page, with `out`.

    Examples
    --------
    >>> found = cape.compare_groups(tables, group="dx: patient, control", outcomes="volume 3:6",
    ...                             epsilon=4.0)
    >>> found
    <GroupResult At these 3 sites, ... epsilon 4>
    """

    sentence: str
    comparison: Comparison | None
    tables: Tables
    private: bool
    epsilon: float | None
    delta: float
    folder: Path | None

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Every difference with its error, interval and p; of a pattern its test first."""
        return self.tables.effects

    def __repr__(self) -> str:
        promise = f"epsilon {self.epsilon:.3g}" if self.private else "NOT PRIVATE"
        return f"<GroupResult {self.sentence} {promise}>"


def compare_groups(
    sites: str | Path | Mapping[str, Columns],
    *,
    group: str,
    outcomes: str,
    covariates: str = "",
    epsilon: float | None = None,
    delta: float = 1e-5,
    out: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
    seed: int | None = None,
) -> GroupResult:
    """Run a comparison of groups (docs/computations/capecontrast.md); return what it says.

    Parameters
    ----------
    sites : folder or mapping
        A folder with one of each site, or of each site a data frame or columns by name.
    group, outcomes, covariates : str
        Columns with public ranges and units: ``"dx: patient, control"``,
        ``"hippocampus 3200:4800"``, ``"age 18:90, sex female/male"``.
    epsilon, delta : float
        What every person may lose in all.
    out : path, optional
        Where files and page are kept.
    settings : mapping, optional
        Those of docs/config.md.
    seed : int, optional
        0 to 2^63 - 1; the result is then not private.

    Returns
    -------
    GroupResult

    Raises
    ------
    ConfigError
        CAPE-E013: no epsilon, CAPE-E284: columns of several lengths.
    DataError
        The table of a site did not pass a check.

    Examples
    --------
    >>> found = cape.compare_groups(tables, group="dx: patient, control", outcomes="volume 3:6",
    ...                             epsilon=4.0)
    >>> [effect.privacy < 1 for effect in found.effects]
    [True]
    """
    asked = {"group": group, "outcomes": outcomes, "covariates": covariates}
    chosen = {**asked, **(settings or {}), "computation": "capecontrast"}
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        data = sites
        if isinstance(sites, Mapping):
            # In a simulation a few sites are enough to try it.
            chosen = {"min_sites": min(3, len(sites)), "n_sites": len(sites), **chosen}
            data = base / "sites"
            for name, columns in sites.items():
                _write_table(data / name, columns)
        folder = simulate_folder(
            str(data),
            out=out or base / "out",
            epsilon=epsilon,
            delta=delta,
            settings=chosen,
            seed=seed,
        )
        found = cast(ComparisonFolder, read_folder(folder))
    results = found.results
    return GroupResult(
        sentence=sentence(results),
        comparison=results.comparison,
        tables=found.tables,
        private=results.private,
        epsilon=results.epsilon,
        delta=results.delta,
        folder=folder if out else None,
    )


def _write_table(folder: Path, columns: Any) -> None:
    """Write the participants.tsv of a site; people are numbered where nothing names them."""
    named = {str(name): list(columns[name]) for name in columns}
    lengths = {len(values) for values in named.values()}
    if len(lengths) != 1 or lengths == {0}:
        problem = f"a table whose columns have {', '.join(map(str, sorted(lengths)))} rows"
        raise ConfigError("E284", problem=problem, do="give every person a row in each column.")
    if PERSON not in named:
        named = {PERSON: [f"sub-{i:05}" for i in range(1, lengths.pop() + 1)], **named}
    folder.mkdir(parents=True)
    rows = ([files.cell(value) for value in row] for row in zip(*named.values(), strict=True))
    files.write_table(folder / "participants.tsv", list(named), rows)
