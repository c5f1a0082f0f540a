"""`cape.compare_groups`: test whether two groups differ, on tables of sites in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from cape.algorithms.estimators import Array
from cape.data.tables import PERSON
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.python.api import simulate_folder
from cape.report import files
from cape.report.comparison import Effect, GroupComparison, Tables
from cape.report.results import ComparisonFolder, read_folder, sentence

Columns = Mapping[str, Sequence[object] | Array]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GroupResult:
    """The released results of a comparison; none describes a single person.

    Attributes
    ----------
    sentence : str
        The answer.
    comparison : GroupComparison of figures, or None
        The answer in figures; None if a site refused a release.
    tables : Tables
        The rows of all files.
    private : bool
        Whether `epsilon` is guaranteed: False without noise or with a seed.
    epsilon, delta : float
        Total per person; epsilon is None if the run is not private.
    folder : Path or None
        The consortium's files and page; None without `out`.

    Examples
    --------
    >>> found = cape.compare_groups(tables, group="dx: patient, control", outcomes="volume 3:6",
    ...                             epsilon=4.0)
    >>> found
    <GroupResult At these 3 sites, ... epsilon 4>
    """

    sentence: str
    comparison: GroupComparison | None
    tables: Tables
    private: bool
    epsilon: float | None
    delta: float
    folder: Path | None

    @property
    def effects(self) -> tuple[Effect, ...]:
        """All differences with error, interval and p; the test of a pattern comes first."""
        return self.tables.effects

    def __repr__(self) -> str:
        privacy = f"epsilon {self.epsilon:.3g}" if self.private else "NOT PRIVATE"
        return f"<GroupResult {self.sentence} {privacy}>"


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
    """Run a comparison of groups (docs/computations/capecontrast.md) and return its results.

    Parameters
    ----------
    sites : folder or mapping
        A folder that holds a folder for each site, or for each site a data frame or a mapping from
        names to columns.
    group, outcomes, covariates : str
        Columns with public ranges and units: ``"dx: patient, control"``,
        ``"hippocampus 3200:4800"``, ``"age 18:90, sex female/male"``.
    epsilon, delta : float
        Total privacy loss per person.
    out : path, optional
        Folder for files and page; without it they are deleted.
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
        CAPE-E013: no epsilon, CAPE-E284: columns of different lengths.
    DataError
        The table of a site did not pass a check.

    Examples
    --------
    >>> found = cape.compare_groups(tables, group="dx: patient, control", outcomes="volume 3:6",
    ...                             epsilon=4.0)
    >>> [effect.privacy < 1 for effect in found.effects]
    [True]
    """
    question = {"group": group, "outcomes": outcomes, "covariates": covariates}
    run_settings = {**question, **(settings or {}), "computation": "capecontrast"}
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        data = sites
        if isinstance(sites, Mapping):
            # A simulation may have fewer sites than the default minimum.
            few = {"min_sites": min(3, len(sites)), "n_sites": len(sites)}
            run_settings = {**few, **run_settings}
            data = base / "sites"
            for name, columns in sites.items():
                _write_table(data / name, columns)
        folder = simulate_folder(
            str(data),
            out=out or base / "out",
            epsilon=epsilon,
            delta=delta,
            settings=run_settings,
            seed=seed,
        )
        written = cast(ComparisonFolder, read_folder(folder))
    results = written.results
    return GroupResult(
        sentence=sentence(results),
        comparison=results.comparison,
        tables=written.tables,
        private=results.private,
        epsilon=results.epsilon,
        delta=results.delta,
        folder=folder if out else None,
    )


def _write_table(folder: Path, columns: Any) -> None:
    """Write the participants.tsv of a site; number its people if no column names them."""
    table = {str(name): list(columns[name]) for name in columns}
    lengths = {len(values) for values in table.values()}
    if len(lengths) != 1 or lengths == {0}:
        problem = f"a table whose columns have {', '.join(map(str, sorted(lengths)))} rows"
        raise ConfigError("E284", problem=problem, do="give every person a row in each column.")
    if PERSON not in table:
        table = {PERSON: [f"sub-{i:05}" for i in range(1, lengths.pop() + 1)], **table}
    folder.mkdir(parents=True)
    rows = ([files.cell(value) for value in row] for row in zip(*table.values(), strict=True))
    files.write_table(folder / "participants.tsv", list(table), rows)
