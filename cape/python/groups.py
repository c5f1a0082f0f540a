"""`cape.compare_groups`: a linear model of outcomes, on tables of sites in this process."""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from cape.algorithms.estimators import Array
from cape.counting import CountedPeople
from cape.data.folders import may_name_a_site
from cape.data.issues import WHERE_IT_STANDS, UnusableFile
from cape.data.marks import EXCLUDE, exclude_says
from cape.data.tables import PERSON, SESSION, column_names, rows_of_people
from cape.errors import CapeError, CapeWarning, ConfigError, SubjectsWarning, warn_caller
from cape.frozen import dataclass
from cape.planning.judge import at_hand
from cape.privacy.accounting import display_epsilon
from cape.python.api import USUAL_DELTA, simulate
from cape.python.notebook import comparison_html
from cape.python.people import file_fault, joined_settings, named_sites, pandas_for, privacy_given
from cape.python.question_words import Range, Words, column_words, listed_words
from cape.report import files
from cape.report.comparison import MATRICES, WEIGHT, GroupComparison, asked_in
from cape.report.results import ComparisonFolder, read_folder, sentence
from cape.settings.documents import toml_text
from cape.settings.option import did_you_mean, out_of_range
from cape.settings.own_words import POLICY_FILE

Columns = Mapping[str, Sequence[object] | Array]
# What a site writes into its policy, and what is done with a frame
_KEY, _WORD = r'(?:"[^"]*"|[\w-]+)', r'"[^"]*"'
_STANDS = re.escape(WHERE_IT_STANDS)
_MARK = r'move it into column exclude; .*? not_exclusions = \["(.*?)"\] into .*?site-policy\.toml'
_OF_FRAMES = (
    (re.compile(r"; see its site-error\.txt"), ""),
    # A cell that looks like a mark, or a whole column of marks
    (re.compile(rf"(in column .*?Fix: ){_MARK}"), r"\1set such cells to NaN, or drop the rows"),
    (re.compile(_MARK), r"drop the rows of who is left out, then the column \1"),
    (re.compile(rf"write variables\.{_KEY}\.times = ([^ ,;]+)"), r"multiply the column by \1"),
    (re.compile("ask the owner for a narrower range"), "give a narrower range"),
    (re.compile(rf"write as_it_is = (\[.*?\]); {_STANDS}"), r"give as_it_is=\1"),
    (re.compile(r"write decimal_commas = \[[^)]*\), or numbers"), "write numbers"),
    (re.compile("ask the owner for another range"), "give another range"),
    (re.compile("ask the owner for other levels"), "give other levels"),
)
# Columns that name sites
_OF_SITES: Final = ("site", "site_id", "scanner", "center", "centre", "hospital")
_SIGNS = re.compile(r"[\t\r\n]")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GroupResult:
    """The released results of a comparison; none describes a single person.

    Attributes
    ----------
    sentence : str; the answer in words
    comparison : GroupComparison
        The rows of all tables as records; without rows if a site refused a release.
    private, epsilon, delta, counted : as of `Result`
        `counted` is None under a policy without private_results.
    folder : Path or None; the consortium's files and page; None without `out`

    Examples
    --------
    >>> found = cape.compare_groups(tables, "dx", variables={"dx": ["control", "SZ"]},
    ...                             outcomes={"volume": (3, 6)}, public="dx", epsilon=4.0)
    >>> found
    <GroupResult SZ and control differ in volume: ... epsilon 4.000>
    """

    sentence: str
    comparison: GroupComparison
    private: bool
    epsilon: float | None
    delta: float
    counted: CountedPeople | None
    folder: Path | None

    @property
    def effects(self) -> Any:
        """effects.tsv as a DataFrame; the test of a pattern comes first (docs/reports.md)."""
        return self.table("effects")

    def table(self, name: str) -> Any:
        """Return a table as a pandas DataFrame, empty if the comparison has no such rows.

        ConfigError CAPE-E015: pandas is not installed, CAPE-E011: another name.

        Parameters
        ----------
        name : str; effects, omnibus, means, balance, pattern, sites or networks

        Returns
        -------
        DataFrame
        """
        pd = pandas_for("tables of a comparison")
        if name not in _TABLES:
            raise out_of_range("name", name, ", ".join(_TABLES))
        rows = getattr(self.comparison, name)
        return pd.DataFrame(
            [{field: getattr(row, field) for field in row.__slots__} for row in rows]
        )

    def matrix(self, what: str = "", contrast: str = "") -> Any:
        """Return a contrast of edges as a DataFrame (regions x regions), such as nilearn draws.

        ConfigError CAPE-E015: pandas is not installed, CAPE-E011: another name, CAPE-E284: the
        outcomes are not the edges of some regions.

        Parameters
        ----------
        what : str; d, which is meant without it, estimate or p; of a pattern weight
        contrast : str; as in `effects`; the first without it

        Returns
        -------
        DataFrame, symmetric; NaN where a figure is withheld
        """
        pd = pandas_for("matrix")
        contrasts = list(dict.fromkeys(row.contrast for row in self.comparison.effects))
        kinds = (WEIGHT,) if self.comparison.pattern else ("d", *MATRICES)
        regions = list(self.comparison.regions)
        if not regions:
            problem = "outcomes that are not all edges between regions, named 'A - B'"
            raise ConfigError("E284", problem=problem, do="rename the columns, or use effects.")
        if (what or kinds[0]) not in kinds:
            raise out_of_range("what", what, ", ".join(dict.fromkeys(kinds)))
        if (contrast or contrasts[0]) not in contrasts:
            raise out_of_range("contrast", contrast, ", ".join(contrasts))
        values = self.comparison.matrix(contrast or contrasts[0], what or kinds[0])
        return pd.DataFrame(values, index=regions, columns=regions)

    def _repr_html_(self) -> str:
        privacy = "NOT PRIVATE: no privacy guarantee."
        if self.private:
            epsilon = display_epsilon(self.epsilon)
            privacy = f"epsilon {epsilon} at delta {self.delta:g} for every person."
        return comparison_html(self.comparison, self.sentence, privacy)

    def __repr__(self) -> str:
        privacy = f"epsilon {display_epsilon(self.epsilon)}" if self.private else "NOT PRIVATE"
        return f"<GroupResult {self.sentence} {privacy}>"


_TABLES = ("effects", "omnibus", "means", "balance", "pattern", "sites", "networks")


def compare_groups(
    sites: str | Path | Mapping[str, Columns] | Columns | Sequence[Columns],
    formula: str,
    *,
    variables: str | Mapping[str, Range | Sequence[str]],
    outcomes: str | Mapping[str, Range],
    public: Words = "",
    ask: Words = "",
    among: str = "",
    change: Words = "",
    test: str = "each",
    site_effects: str = "fixed",
    maps: str | Path | None = None,
    as_it_is: Words = "",
    epsilon: float | None = None,
    delta: float = USUAL_DELTA,
    private: bool | None = None,
    out: str | Path | None = None,
    replace: bool = False,
    settings: Mapping[str, object] | None = None,
    seed: int | None = None,
) -> GroupResult:
    """Run a comparison (docs/computations/capecontrast.md) and return its results.

    Parameters
    ----------
    sites : folder or mapping
        A folder that holds a folder for each site, or for each site a data frame or a mapping from
        names to columns: by name, in a list, or one alone.  A site may lack an outcome.
    formula : str
        The right side of a formula of R: ``"dx * age + sex"``; the site is always in the model.
    variables : mapping or str
        Its columns: levels, the reference first, or the public range:
        ``{"dx": ["control", "SZ"], "age": (18, 90)}``.
    outcomes : mapping or str
        Columns with the range of most people, ``{"hippocampus": (2500, 5500)}``, ``log(wmh)`` for
        positive skewed values; or a measure of maps such as ``"fnc"``.
    public : str or list; columns whose counts by site are published; without any, errors are larger
    ask : str or list; terms of the formula to answer; the first without it
    among : str; only people of a level, ``"dx SZ"``
    change : two sessions, the outcome is the later less the earlier, ``("ses-1", "ses-2")``
    test : str; each outcome, or one pattern of all
    site_effects : str; fixed: for these sites; random: for sites like them
    maps : path, optional
        Public maps whose connectivity is compared, or an atlas whose regions the outcomes join.
    as_it_is : str or list
        Columns that are right although cells of a whole site look wrong, such as one level only.
    epsilon, delta, private, settings, seed
        As for `Consortium.run`; without noise these are least squares.
    out : path, optional; folder for files and page; without it they are deleted
    replace : bool; give up a finished run in `out`

    Returns
    -------
    GroupResult

    Raises
    ------
    ConfigError
        CAPE-E011: a question that cannot be read or answered, with what to write; CAPE-E013: no
        epsilon; CAPE-E284: a table without a column, or with columns of different lengths.
    DataError
        The table of a site did not pass a check.

    Examples
    --------
    >>> found = cape.compare_groups(tables, "dx", variables={"dx": ["control", "SZ"]},
    ...                             outcomes={"volume": (3, 6)}, public="dx", epsilon=4.0)
    >>> [(row.contrast, row.fits) for row in found.comparison.effects]
    [('SZ - control', 'yes')]
    """
    private_or_not = privacy_given(epsilon, private, settings)
    question = {
        "formula": formula,
        "variables": column_words("variables", variables),
        "outcomes": column_words("outcomes", outcomes),
        "public": listed_words("public", public),
        "ask": listed_words("ask", ask),
        "among": among,
        "change": listed_words("change", change),
        "test": test,
        "site_effects": site_effects,
    }
    # What is left at its default contradicts no setting.
    usual = {"test": "each", "site_effects": "fixed", "delta": USUAL_DELTA}
    asked: dict[str, object] = {**question, "delta": delta, "computation": "capecontrast"}
    given = {name: value for name, value in asked.items() if value != usual.get(name)}
    run_settings = {**asked, **joined_settings(settings, **given)}
    tables = _tables_of(sites) if _is_file(sites) or not isinstance(sites, str | Path) else None
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        data: Any = sites
        if tables is not None:
            run_settings = {"n_sites": len(tables), **at_hand(run_settings, len(tables))}
            stated = {**run_settings, **private_or_not}
            if stated.get("private", True) is not False and "epsilon" not in stated:
                raise ConfigError("E013", setting="epsilon", do="pass epsilon=, or private=False.")
            data, numbers = base / "sites", count(1)
            needed, may_lack = _columns(run_settings)
            if len(tables) == 1:
                _tell_of_sites(tables, needed)
            for name, columns in tables.items():
                there = column_names(list(map(str, columns)))
                lacks = [one for one in may_lack if one.lower() not in there]
                wanted = needed if len(lacks) < len(may_lack) else needed + may_lack
                _write_table(data / name, columns, numbers, wanted)
                own = {"lacks": lacks, "as_it_is": listed_words("as_it_is", as_it_is).split(", ")}
                if own := {word: names for word, names in own.items() if any(names)}:
                    (data / name / POLICY_FILE).write_text(toml_text(own), encoding="utf-8")
            if len(tables) == 1:  # a folder that holds one folder is itself the site
                (data,) = data.iterdir()
        try:
            folder = simulate(
                str(data),
                out=out or base / "out",
                replace=replace,
                epsilon=epsilon,
                private=private,
                settings=run_settings,
                maps=maps,
                seed=seed,
            )
        except CapeError as err:
            if tables is not None:
                err.args = (_of_frames(str(err)),)
            raise
        results = cast(ComparisonFolder, read_folder(folder)).results
        counted = results.counted
        if counted is None and any(folder.parent.glob("*/private/site.json")):
            counted = CountedPeople(listed=results.n_subjects, counted=results.n_subjects, why={})
    return GroupResult(
        sentence=sentence(results),
        comparison=results.comparison,
        private=results.private,
        epsilon=results.epsilon,
        delta=results.delta,
        counted=counted,
        folder=folder if out else None,
    )


def _of_frames(text: str) -> str:
    """Return an error of a site's files as one of the frames that were given."""
    text = _OTHER_WORDS.sub(_cells_replaced, _OTHER_UNIT.sub(_range_of_unit, text))
    text = _PLACE.sub(lambda at: f"row {int(at[1]) - 1}" if at[1] else "", text)
    for there, here in _OF_FRAMES:
        text = there.sub(here, text)
    return text


# A line of the file that a frame becomes; the frame's first row is 1
_PLACE: Final = re.compile(r"participants\.tsv: (?:line (\d+))?")
# Levels in other words
_LEVEL = rf"levels\.({_KEY})\.{_KEY} = {_WORD}"
_OTHER_WORDS: Final = re.compile(
    rf"write ({_LEVEL}(?:, {_LEVEL})*)(?:, with the word (that means it for )\"\.\.\.\")?"
)


def _cells_replaced(found: re.Match[str]) -> str:
    """Return how a frame's own words become levels."""
    pairs = re.findall(rf"levels\.{_KEY}\.({_KEY}) = ({_WORD})", found[1])
    words = ((level.strip('"'), "..." if "..." in word else word) for level, word in pairs)
    cells = ", ".join(f'{word}: "{level}"' for level, word in words)
    doubt = found[4] and f", with the cell {found[4]}each ..."
    return f'give df["{found[2].strip(chr(34))}"].replace({{{cells}}}){doubt or ""}'


# A column in another unit: as_it_is keeps none of its values.
_OTHER_UNIT: Final = re.compile(
    r"(far )?outside (\S+):([^ ,]+), middle [^;]*?"
    rf"write variables\.({_KEY})\.times = ([^ ,;]+)([^;]*); if the column is right.*?{_STANDS}"
)


def _range_of_unit(found: re.Match[str]) -> str:
    """Return the fault of a column in another unit with the range in that unit."""
    far, low, high, name, times, brings = found.groups()
    where = "outcomes" if far else "variables"
    ends = tuple(float(f"{float(end) / float(times):.6g}") for end in (low, high))
    told = found[0].partition("write variables")[0]
    told += f"give {where}={{{name.strip(chr(34))!r}: {ends}}} if all sites have that unit, or "
    return f"{told}multiply the column by {times}{brings}"


def _tables_of(sites: Any) -> dict[str, Any]:
    """Return the columns of each site by name; ConfigError CAPE-E284 for anything else."""

    def is_table(x: Any) -> bool:
        if hasattr(x, "columns") or _is_file(x):
            return True
        return isinstance(x, Mapping) and not any(
            isinstance(column, Mapping | str | Path) or hasattr(column, "columns")
            for column in x.values()
        )

    if hasattr(sites, "columns") or _is_file(sites) or (sites and is_table(sites)):
        sites = [sites]
    if not isinstance(sites, Mapping):
        sites = {f"site{k}": table for k, table in enumerate(sites, 1)}
    if not sites or not all(map(is_table, sites.values())):
        problem = "sites that are not tables"
        do = "give a data frame, columns by name, or the name of a .csv or .tsv for each site; "
        do += "or the folder that holds a folder of each."
        raise ConfigError("E284", problem=problem, do=do)
    sites = named_sites(sites)
    if ignored := [name for name in sites if not may_name_a_site(name)]:
        do = "rename it: folders of results and of programs have such names."
        raise ConfigError("E284", problem=f"a site called {ignored[0]!r}", do=do)
    return {name: _columns_of(name, table) for name, table in sites.items()}


def _is_file(x: Any) -> bool:
    return isinstance(x, str | Path) and Path(x).suffix.lower() in (".csv", ".tsv")


def _columns_in(site: str, path: Path) -> dict[str, list[str]]:
    """Return the cells of a table of people by columns; ConfigError CAPE-E284."""
    if not path.is_file():
        raise ConfigError("E284", problem=f"no file {path}", do="correct the name.")
    try:
        header, rows = rows_of_people(path)
        people = [(row, row.cells) for row in rows]
    except UnusableFile as fault:
        raise file_fault(path, fault) from fault
    if odd := next((row for row, cells in people if row.issue or not cells), None):
        problem = f"the table of {site}, {path}: line {odd.line.number} cannot be read"
        raise ConfigError("E284", problem=problem, do="correct the line.")
    return {name: [cells[k] for _, cells in people] for k, name in enumerate(header)}


def _tell_of_sites(tables: Mapping[str, Any], needed: Sequence[str]) -> None:
    """Warn where one table has a column of sites, which makes no sites and is not asked for."""
    (columns,) = tables.values()
    names = dict(zip(column_names(list(map(str, columns))), columns, strict=True))
    asked = column_names(needed)
    if found := [names[one] for one in _OF_SITES if one in names and one not in asked]:
        text = f"one table is one site, and its column {found[0]} makes no sites: give "
        text += f"{{name: rows for name, rows in df.groupby('{found[0]}')}}"
        warn_caller(text, CapeWarning)


def _columns_of(site: str, table: Any) -> Any:
    """Return a table by columns; those that a frame has as its index count as columns."""
    if _is_file(table):
        return _columns_in(site, Path(table))
    if not hasattr(table, "columns"):
        return table
    there = list(map(str, table.columns))
    if twice := next((name for name in there if there.count(name) > 1), ""):
        problem = f"the table of {site} has {there.count(twice)} columns {twice}"
        raise ConfigError("E284", problem=problem, do="keep one.")
    index: Any = getattr(table, "index", None)
    names = [name for name in getattr(index, "names", ()) if isinstance(name, str)]
    own = {
        name: list(index.get_level_values(name))
        for name in names
        if name.lower() not in column_names(there)
    }
    return {**own, **{str(name): table[name] for name in table.columns}}


def _columns(settings: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that the tables of a question must have, and its outcomes."""
    question = asked_in(settings)
    names = [one.name for one in question.variables if one.name not in question.of_runs]
    # A person of two sessions has two rows.
    names += [PERSON, SESSION] if question.change else []
    outcomes = () if question.measure else tuple(one.name for one in question.outcomes)
    return tuple(names), outcomes


def _write_table(
    folder: Path, columns: Any, numbers: Iterator[int], wanted: Sequence[str] = ()
) -> None:
    """Write the participants.tsv of a site; people whom no column names get the next `numbers`.

    ConfigError E284: a column of `wanted` is not there.
    """
    table = {str(name): _listed_cells(str(name), columns[name]) for name in columns}
    there = column_names(list(table))
    if there.count(PERSON) == 1:  # in whatever case, as the site's own tables have it
        person = list(table)[there.index(PERSON)]
        table = {PERSON: table.pop(person), **table}
    if lacks := [name for name in wanted if name.lower() not in there]:
        near = did_you_mean(lacks[0].lower(), there)
        problem = f"the table of {folder.name} has no column {', '.join(lacks)}{near}"
        raise ConfigError("E284", problem=problem, do=f"it has {', '.join(table)}.")
    lengths = {len(values) for values in table.values()}
    if len(lengths) != 1 or lengths == {0}:
        problem = f"a table whose columns have {', '.join(map(str, sorted(lengths)))} rows"
        raise ConfigError("E284", problem=problem, do="give every person a row in each column.")
    if PERSON not in there:
        n_people, n_unlike = max(lengths), len(set(zip(*_cells(table), strict=True)))
        if n_unlike < n_people:
            twice = (
                f"{folder.name}: {n_people - n_unlike} of {n_people} rows are the same as others "
            )
            twice += f"in all columns, and count as other people; a column {PERSON} says who is who"
            warn_caller(twice, SubjectsWarning)
        table = {PERSON: [f"sub-{next(numbers):05}" for _ in range(lengths.pop())], **table}
    if EXCLUDE in there:
        (cells,) = _cells({"": table[list(table)[column_names(list(table)).index(EXCLUDE)]]})
        with suppress(UnusableFile):  # told where the file is read
            if n_out := sum(map(bool, map(exclude_says, cells))):
                told = f"{folder.name}: column {EXCLUDE} leaves out {n_out} of {len(cells)} rows"
                warn_caller(told, SubjectsWarning)
    folder.mkdir(parents=True)
    # A separator or a line end in somebody's note would make cells, or people, of it.
    files.write_table(folder / "participants.tsv", list(table), zip(*_cells(table), strict=True))


def _listed_cells(name: str, values: Any) -> list[Any]:
    is_plain = np.iterable(values) and not isinstance(values, str | bytes)
    if not is_plain or getattr(values, "ndim", 1) != 1:
        problem = f"a column {name} that is not a list of cells"
        raise ConfigError("E284", problem=problem, do="give every person a row in each column.")
    return list(values)


def _cells(table: Mapping[str, Sequence[object]]) -> list[list[str]]:
    return [[_SIGNS.sub(" ", files.cell(value)) for value in table[name]] for name in table]
