"""People in the forms of scikit-learn and nilearn: arrays, file names, images, folders of sites."""

import functools
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.data.file_type import MATRIX_SUFFIXES, suffix_of
from cape.data.folders import OF_BIDS, sites_below
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.matrices import Orientation, read_matrix
from cape.data.people import read_people
from cape.data.runs import Person, SiteRun
from cape.data.subjects import joined_in_time, read_subject
from cape.data.tables import read_confounds
from cape.errors import CapeError, ConfigError, DataError, SubjectsWarning, warn_caller
from cape.planning.people import config_for
from cape.planning.run_headers import bundled_mask, range_of
from cape.python.question_words import question_in_words
from cape.settings.config import NO_SITE_NAME, Config, is_site_name
from cape.settings.option import out_of_range
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace

# Settings that say how array files are read
HOW_READ: Final = ("variable", "orientation")
# What to do with people who are features by time
TRANSPOSE: Final = "X.T, or for files JointICA(settings={'orientation': 'feature_by_time'})"


def is_file(x: Any) -> bool:
    """Whether x is an image, or the name of a file or folder."""
    return isinstance(x, str | os.PathLike) or hasattr(x, "dataobj")


def is_table(x: Any) -> bool:
    """Whether x is the name of an array file: .npy, .npz, .mat, .csv, .tsv, .txt, .1D."""
    return isinstance(x, str | os.PathLike) and suffix_of(Path(x).name) in MATRIX_SUFFIXES


class Given(NamedTuple):
    """An entry of a list: a person, or where files say so one run of a person."""

    data: Any  # array (T, D), or a SiteRun that cape's reader reads
    columns: tuple[str, ...] = ()
    file: Path | None = None  # whose name says who the person is
    digest: str = ""  # SHA-256 of the bytes of that file, where `data` are its values


def with_names(X: Any, how: Mapping[str, object] | None = None) -> Given:
    """Return data with the names of its columns and of its file, if there are any.

    An array file, read as the settings `HOW_READ` of `how` say, or a frame becomes an array
    (n_timepoints, n_features); others stay as they are.
    ConfigError CAPE-E284: a file that cannot be used.
    """
    if isinstance(X, Given):
        return X
    if hasattr(X, "columns"):
        names = list(X.columns)
        numbered = names == list(range(len(names)))  # by pandas, where nobody named them
        columns = () if numbered else tuple(map(str, names))
        if twice := next((name for name in columns if columns.count(name) > 1), ""):
            problem = f"a frame with {columns.count(twice)} columns '{twice}'"
            raise ConfigError("E284", problem=problem, do="keep one, or give each its own name.")
        return Given(real_numbers(X), columns)
    if isinstance(X, str | os.PathLike) and suffix_of(Path(X).name) in (".xlsx", ".xls", ".ods"):
        raise ConfigError("E284", problem=f"{X}, a workbook", do="save its sheet as .csv.")
    if not is_table(X):
        return Given(X if is_file(X) else real_numbers(X), file=file_behind(X))
    place, how = _file_named(X), how or {}
    by_time: Orientation = "time_by_feature"
    orientation = "feature_by_time" if how.get("orientation") == "feature_by_time" else by_time
    variable = str(how.get("variable", "X"))
    try:
        series = read_matrix(SiteRun(path=place, name=place.name), orientation, variable)
    except UnusableFile as fault:
        by_row = "; a row per time point" if orientation == "time_by_feature" else ""
        raise file_fault(place, fault, by_row) from fault
    values = np.asarray(series.values.T, dtype=np.float64)
    return Given(values, series.columns, place, series.digest)


def real_numbers(X: Any) -> npt.NDArray[Any]:
    """Return an array, a frame or lists as an array; of a masked or missing cell NaN.

    Arrays of other things stay.  ConfigError CAPE-E284: a column of a frame that is no numbers, or
    rows of unlike length.
    """
    try:
        values = np.asarray(X)
    except ValueError as err:
        problem = "people whose rows have unlike numbers of values"
        raise ConfigError("E284", problem=problem, do="give arrays of two axes.") from err
    if np.ma.isMaskedArray(X):
        return np.where(np.ma.getmaskarray(X), np.nan, values)
    if values.dtype.kind in "biuf" or not values.ndim:
        return values
    # Columns of unlike types, or those of pandas that know a cell without a value.
    empty = np.asarray(X.isna()) if hasattr(X, "isna") else np.zeros(values.shape, dtype=bool)
    cells = values.astype(object)
    odd = {kind for kind in map(type, cells[~empty]) if not issubclass(kind, Real | np.bool_)}
    if odd and hasattr(X, "columns"):
        has = [any(type(cell) in odd for cell in column) for column in cells.T]
        problem = f"column '{X.columns[has.index(True)]}', which does not hold numbers"
        raise ConfigError("E284", problem=problem, do="give numbers, or leave it out.")
    if odd:
        return values
    cells[empty] = np.nan
    return cells.astype(np.float64)


def _file_named(name: str | os.PathLike[str]) -> Path:
    """Return the path of a file; ConfigError CAPE-E284 if there is none."""
    if not (place := Path(name)).is_file():
        raise ConfigError("E284", problem=f"no file {place}", do="give names of files.")
    return place


def file_fault(place: Path, fault: UnusableFile, more: str = "") -> ConfigError:
    """Return the verdict on a file as an error of Python."""
    code, values = fault.issue.code, fault.issue.values
    problem = code.problem.format(**values)
    problem = f"{place}: {problem[:1].lower()}{problem[1:]} ({fault.issue.observed})"
    do = code.remedy.format(**values).split(", or ask the owner")[0]
    if code is IssueCode.TRANSPOSED:
        do, more = f"transpose it ({TRANSPOSE})", ""
    if code is IssueCode.NO_VARIABLE:
        do += ", or name the one to read in settings= (variable)"
    return ConfigError("E284", problem=problem, do=f"{do}{more}.")


def file_behind(x: Any) -> Path | None:
    """Return the file that a name or an image in memory is of; None if there is none."""
    name = x.get_filename() if hasattr(x, "get_filename") else x
    is_name = isinstance(name, str | os.PathLike)
    return Path(name) if is_name and Path(name).is_file() else None


class Listed(NamedTuple):
    """The people of a list, and the labels that names or lists state; the others are numbers."""

    people: list[Person]
    stated: frozenset[str]


def people_in(site: str, entries: Sequence[Given], config: Config, findings: Findings) -> Listed:
    """Return the people of a list: names of files say who is who, as in a folder.

    An array, or a file where no name states a person, is one person.  Findings go to `findings`.
    ConfigError CAPE-E284: one run of a person in several files; DataError: names that do not say
    whose the files are, or a list beside them that cannot be used.
    """
    files = {k: Path(os.path.abspath(one.file)) for k, one in enumerate(entries) if one.file}
    people: list[Person] = []
    stated = frozenset[str]()
    if files:
        base = Path(os.path.commonpath([*map(_above_people, files.values())]))
        at = {path.relative_to(base).as_posix(): k for k, path in files.items()}
        names = [path.relative_to(base).as_posix() for path in files.values()]
        listed = read_people(base, config, findings, only=names)
        if listed.doubled:
            problem = f"one run of a person in several files of site {site}"
            problem = "; ".join((problem, *_versions(findings)))
            do = "give one file of each run, or each its site (a mapping, or groups=)."
            raise ConfigError("E284", problem=problem, do=do)
        findings.raise_if_blocked()
        if listed.runs_left_out:
            warn_caller("; ".join((site, *listed.said)), SubjectsWarning)
        for person in listed.listed:
            runs = [_run_in(entries[at[os.path.normpath(r.name)]], r) for r in person.runs]
            people.append(replace(person, runs=tuple(runs)))
        stated = listed.stated
    labels = {person.label for person in people}
    for m, one in enumerate(entries, start=1):
        if not one.file:
            label = f"sub-{m:03d}" if not labels else f"entry {m}"
            run = SiteRun(path=Path(label), name=label)
            people.append(Person(label=label, runs=(_run_in(one, run),)))
    return Listed(people, stated)


def check_apart(sites: Mapping[str, Sequence[Given]]) -> None:
    """ConfigError CAPE-E284: names in one folder give a person to two sites, who counts twice."""
    site_of: dict[str, str] = {}
    for site, entries in sites.items():
        for file in (os.path.abspath(one.file) for one in entries if one.file):
            stated = re.match(r".*?/sub-[^/_.]+", file)
            person = stated[0] if stated else file
            if (other := site_of.setdefault(person, site)) != site:
                problem = f"{person} is one person, in two sites: {other} and {site}"
                do = "write the same site for all files of a person (groups= or the mapping)."
                raise ConfigError("E284", problem=problem, do=do)


def _above_people(file: Path) -> Path:
    """Return the folder of a file, above folders of people and those of BIDS for programs."""
    parts = file.parts[:-1]
    at = (n for n, part in enumerate(parts) if part.startswith("sub-"))
    above = parts[: next(at, len(parts))]
    return Path(*above[: max((n for n, part in enumerate(above) if part in OF_BIDS), default=None)])


def _versions(findings: Findings) -> Iterator[str]:
    """Yield the files that are versions of one run."""
    code = f"1{IssueCode.RUN_VERSIONS.number:02d}"
    yield from (f.places[0] for f in findings.listing() if f.code.endswith(code) and f.places)


def _run_in(given: Given, run: SiteRun) -> SiteRun:
    """Return a run as names and lists state it, with the data of the caller."""
    data, digest = given.data, given.digest
    if isinstance(data, SiteRun):
        run = replace(run, path=data.path, values_of=digest)
        return replace(run, values=data.values, signals=data.signals)
    return replace(run, values=np.asarray(data).T, values_of=digest)


def same_names(names: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Return the names of the columns of all entries, each with its place; empty without any.

    Columns are joined by position: ConfigError CAPE-E284 says who first has others.
    """
    named = [(place, columns) for place, columns in names if columns]
    if not named:
        return ()
    first, wanted = named[0]
    for place, columns in named:
        if columns == wanted:
            continue
        both = zip(columns, wanted, strict=False)
        here, there = next((pair for pair in both if pair[0] != pair[1]), ("", ""))
        differs = f"'{here}' where {first} has '{there}'" if here != there else "more or fewer"
        do = "give everybody the same columns, by the same names."
        if sorted(columns) == sorted(wanted):
            do = f"reorder: df[columns], with the columns of {first}."
        problem = f"the columns of {place} are not those of {first}: {differs}"
        raise ConfigError("E284", problem=problem, do=do)
    return wanted


def is_folder(x: Any) -> bool:
    return isinstance(x, str | os.PathLike) and Path(x).is_dir()


def pandas_for(what: str) -> Any:
    """Return the package pandas; ConfigError CAPE-E015 without it."""
    try:
        import pandas as pd
    except ImportError as err:
        do = "install it: pip install pandas."
        raise ConfigError("E015", what=what, package="pandas", do=do) from err
    return pd


def joined_settings(settings: object, **given: object) -> dict[str, object]:
    """Return settings, joined with the arguments that are given: not None or "".

    ConfigError: CAPE-E011 if settings are no mapping, CAPE-E012 if they say something else.
    """
    if settings is not None and not isinstance(settings, Mapping):
        do = "a settings.toml is read with tomllib.load."
        raise out_of_range("settings", repr(settings)[:60], "a mapping of names and values", do)
    said = question_in_words(settings or {})
    given = {name: value for name, value in given.items() if value is not None and value != ""}
    for name, value in given.items():
        there = said.get(name, value)
        if there != value and str(there) != str(value):
            problem = f"{name}={value!r}, and settings say {there!r}"
            raise ConfigError("E012", problem=problem, do="drop one of them.")
    return {**said, **given}


def privacy_given(
    epsilon: float | None, private: object, settings: Mapping[str, object] | None
) -> dict[str, object]:
    """Return the arguments epsilon and private that are given, as settings.

    ConfigError: CAPE-E011 if `private` is no bool, CAPE-E012 if epsilon comes with private=False.
    """
    if private is not None and not isinstance(private, bool | np.bool_):
        raise out_of_range("private", repr(private), "True, False or None", "None is True.")
    given: dict[str, object] = {} if private is None else {"private": bool(private)}
    if epsilon is not None:
        if {**joined_settings(settings), **given}.get("private") is False:
            problem = "epsilon= belongs to a private run, private=False has no noise"
            raise ConfigError("E012", problem=problem, do="drop one of them.")
        given["epsilon"] = epsilon
    return given


class WithConfounds(NamedTuple):
    """A person's data and the signals to regress out of them."""

    data: Any
    confounds: Any


def paired(X: Any, confounds: Sequence[Any] | None) -> Any:
    """Return X, each person paired with its confounds if there are any."""
    if confounds is None:
        return X
    if isinstance(X, Mapping) or is_folder(X):
        problem = "confounds= with people who are not in a list"
        do = "give a list and groups=, or name columns of tables by the setting confounds."
        raise ConfigError("E284", problem=problem, do=do)
    people = several(X)
    if len(people) != len(confounds):
        problem = f"confounds of {len(confounds)} for {len(people)} people"
        raise ConfigError("E284", problem=problem, do="give one entry for every person.")
    return [WithConfounds(*both) for both in zip(people, confounds, strict=True)]


def by_site(X: Any, groups: Iterable[Any] | None) -> Mapping[str, Any]:
    """Return the people of every site: a list, or the folder that holds their files."""
    if groups is not None and (isinstance(X, Mapping) or is_folder(X)):
        problem = "groups= with people who are not in a list"
        do = "drop groups=: the mapping, or the folders, say the site of everybody."
        raise ConfigError("E284", problem=problem, do=do)
    if isinstance(X, Mapping):
        return named_sites({site: _of_one_site(site, people) for site, people in X.items()})
    if is_folder(X):
        return _sites_in(X)
    people = several(X)
    if groups is None and people and all(map(is_folder, people)):
        names = [Path(folder).resolve().name for folder in people]
        if len(set(names)) == len(names):
            return by_site(dict(zip(names, people, strict=True)), None)
    elif groups is None and any(map(_is_person, people)):
        return {"site1": people}
    if groups is None:
        return by_site({f"site{k}": subjects for k, subjects in enumerate(people, 1)}, None)
    sites = [str(site) for site in groups]
    if len(sites) != len(people):
        problem = f"{len(sites)} groups for {len(people)} people"
        raise ConfigError("E284", problem=problem, do="name the site of every person once.")
    if nowhere := next((m for m, site in enumerate(sites, 1) if site in _NO_SITE), 0):
        problem = f"a site called {sites[nowhere - 1]!r} of person {nowhere} in groups="
        raise ConfigError("E284", problem=problem, do="name it, or leave the person out.")
    return named_sites(
        {
            name: [person for person, site in zip(people, sites, strict=True) if site == name]
            for name in dict.fromkeys(sites)
        }
    )


# What a list, a frame or an array has where nobody named a site
_NO_SITE: Final = frozenset(("", "None", "nan", "<NA>", "NaT"))


def named_sites(sites: Mapping[Any, Any]) -> dict[str, Any]:
    """Return sites by their names as text; ConfigError CAPE-E284 if one cannot be a name."""
    names = list(map(str, sites))
    if odd := [name for name in names if name in _NO_SITE or not is_site_name(name)]:
        do = f"rename it: {NO_SITE_NAME}."
        raise ConfigError("E284", problem=f"a site called {odd[0][:60]!r}", do=do)
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        problem = f"a site called {twice[0]!r}, and another, too"
        raise ConfigError("E284", problem=problem, do="rename one of them.")
    return dict(zip(names, sites.values(), strict=True))


def _sites_in(folder: Any) -> dict[str, Path]:
    """Return the folders of sites in a folder, as `cape simulate` reads it."""
    return sites_below(Path(folder)) or {Path(folder).resolve().name: Path(folder)}


def _of_one_site(site: object, people: Any) -> Any:
    """Return the people of a mapping's site: a list, or the folder of its files."""
    if is_folder(people):
        below = _sites_in(people)
        if len(below) > 1:
            problem = f"{people}, given as one site, holds {len(below)}: {', '.join(below)}"
            raise ConfigError("E284", problem=problem, do="give it alone, or each of them.")
        return next(iter(below.values()))
    if _is_person(people):
        problem = f"site {site} is one {_shown(people)}, not a list"
        do = "give a list for every site: {'a': [person, person], 'b': [person]}."
        raise ConfigError("E284", problem=problem, do=do)
    return people


def _is_person(x: Any) -> bool:
    """Whether an entry of X is an image or a table of one person, not the people of a site."""
    return isinstance(x, WithConfounds) or is_file(x) or getattr(x, "ndim", 0) == 2


def _shown(x: Any) -> str:
    """Return what an entry is, in words."""
    if is_file(x):
        return "file or image"
    return "frame" if hasattr(x, "columns") else f"array of shape {np.shape(x)}"


# What commands and files call something, and what is written in Python
_IN_PYTHON: Final[list[list[str]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)["in_python"]
_OWNER_SETS: Final = re.compile(r"the owner sets (\w+) = (\d+) \(--set \w+=\d+\)")
_READ_WITH: Final = re.compile(r"is read with feature_space = (\w+)")
P = ParamSpec("P")
R = TypeVar("R")


def in_python_words(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function, whose errors say what to write in Python, not at a command line."""

    @functools.wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> R:
        try:
            return function(*args, **given)
        except CapeError as err:
            if err.detail and str(err) == err.public:
                err.explain(file=False)  # the caller has the data, and no site-error.txt
            text = str(err)
            for there, here in _IN_PYTHON:
                text = text.replace(there, here)
            text = _OWNER_SETS.sub(r"give settings={'\1': \2}", text)
            text = _READ_WITH.sub(r"is read with settings={'feature_space': '\1'}", text)
            err.args = (text,)  # commands print `public`
            raise

    return call


def several(X: Any) -> Sequence[Any]:
    """Return a list; ConfigError CAPE-E284 for one person, for no folder and for anything else."""
    if isinstance(X, str | os.PathLike) and not Path(X).exists():
        do = "correct the name."
        if set(str(X)) & set("*?["):
            do = f"the names themselves are wanted: sorted(glob.glob({str(X)!r}))."
        raise ConfigError("E284", problem=f"no folder or file {X}", do=do)
    if is_file(X) or hasattr(X, "columns") or getattr(X, "ndim", 0) == 2:
        do = "put it into a list."
        if hasattr(X, "columns"):
            do = "give a list with a frame of each person, such as "
            do += "[rows.drop(columns='subject') for _, rows in df.groupby('subject')]."
        raise ConfigError("E284", problem=f"one {_shown(X)}, not a list", do=do)
    if isinstance(X, Mapping) or not isinstance(X, Iterable):
        problem = f"people as {type(X).__name__}"
        raise ConfigError("E284", problem=problem, do="give a list of people.")
    return list(X)


def features_of(arrays: Sequence[Any], known: int = 0) -> int:
    """Return n_features of people's arrays (n_timepoints, n_features).

    `known`: n_features of a space, of true maps or of a fit; 0 without them.  ConfigError
    CAPE-E284: other arrays, or other features; it says if the arrays look transposed.
    """
    if any(np.asarray(X).dtype.kind not in "biuf" for X in arrays):
        problem = "people that are not arrays of real numbers"
        raise ConfigError("E284", problem=problem, do="give numbers.")
    do = "give (n_timepoints, n_features) of each person"
    if shapes := {np.shape(X) for X in arrays if np.ndim(X) != 2}:
        problem = f"people that are not arrays of two axes, but of shape {min(shapes)}"
        raise ConfigError("E284", problem=problem, do=f"{do}.")
    if not arrays:
        raise ConfigError("E284", problem="a list without people", do="give one or more.")
    rows, columns = ({np.shape(X)[axis] for X in arrays} for axis in (0, 1))
    usual = known or Counter(np.shape(X)[1] for X in arrays).most_common(1)[0][0]
    if len(columns) == 1 and known in (0, *columns):
        return int(columns.pop())
    problem = f"arrays of {range_of(rows)} rows and {range_of(columns)} columns"
    problem += f" for {known} features" if known else ", but features are the same in all people"
    if rows == {known} or (not known and len(rows) == 1 and max(rows) < min(columns)):
        do = f"they look transposed ({TRANSPOSE}): {do}"
    elif wrong := [m for m, X in enumerate(arrays, 1) if np.shape(X)[1] != usual]:
        others = f" and {len(wrong) - 1} more" if wrong[1:] else ""
        has = np.shape(arrays[wrong[0] - 1])[1]
        problem += f": person {wrong[0]}{others} of {len(arrays)}, with {has}"
    raise ConfigError("E284", problem=problem, do=f"{do}, a row per time point.")


def run_of(person: Any, confounds: Any, place: Path) -> SiteRun:
    """Return one person, a file, an image or an array (T, D), as a run of the reader.

    An image in memory is written to the file `place`.
    """
    signals = None if confounds is None else _signals(confounds)
    if not is_file(person):
        return SiteRun(path=place, name=place.name, values=person.T, signals=signals)
    if isinstance(person, str | os.PathLike):
        place = Path(person)
    else:
        person.to_filename(place)
    if not place.is_file():
        raise ConfigError("E284", problem=f"no file {place}", do="give the names of images.")
    # The whole path, because files of several people often have the same name.
    return SiteRun(path=place, name=str(place), signals=signals)


def mask_of(sites: Mapping[str, Any]) -> str:
    """Return the bundled mask that suits the images, as `cape init` does; "" without images."""
    images: list[Path] = []
    for people in sites.values():
        if isinstance(people, Path):
            listed = read_people(people, config_for(people), Findings("any")).listed
            images += [run.path for person in listed for run in person.runs]
        else:
            runs = [one.data for one in people if isinstance(one.data, SiteRun)]
            images += [run.path for run in runs if run.values is None]
    return f"MNI152-{bundled_mask(images)}mm" if images else ""


def _signals(given: Any) -> Array:
    """Return confounds (T, K): an array, a frame of pandas, or the name of a file of them."""
    if isinstance(given, str | os.PathLike) and suffix_of(Path(given).name) in (".tsv", ".csv"):
        place = _file_named(given)
        try:
            given, _ = read_confounds(place, None, [])
        except UnusableFile as fault:
            raise file_fault(place, fault) from fault
    table = np.asarray(with_names(given).data)
    if table.dtype.kind in "biuf":
        table = np.array(table[:, None] if table.ndim == 1 else table, dtype=np.float64)
        # Derivatives have no value at the first volume, where 0 is usual.
        table[:1] = np.where(np.isnan(table[:1]), 0.0, table[:1])
    if table.dtype.kind != "f" or table.ndim != 2 or not np.isfinite(table).all():
        problem = "confounds that are no table (time points, signals) of finite numbers"
        raise ConfigError("E284", problem=problem, do="choose columns without missing values.")
    return table


def time_series(files: Person, space: FeatureSpace, config: Config) -> Array:
    """Return a person (T_m, D), read and cleaned as at a site; DataError E100 if it fails."""
    from cape.data.discovery import SiteListing

    listing = SiteListing(site="transform", config=config, listed=(files,), space=space)
    read, parts = read_subject(files, listing, headers_only=False)
    if read.subject is None:
        findings = Findings("transform")
        for name, issue, _ in read.notes:
            findings.add_issue(issue, name)
        detail = "\n".join(finding.private for finding in findings.listing())
        error = DataError("E100", site="transform", detail=detail)
        error.explain(file=False)
        raise error
    X = joined_in_time(parts, resolve(config).reading.max_timepoints)
    return np.asarray(X.T, dtype=np.float64)


def people_of(folder: Path, config: Config) -> Sequence[Person]:
    """Return the people that a site's folder lists."""
    from cape.data.discovery import list_site

    findings = Findings(folder.name)
    listed = list_site(folder, {}, config, findings).listed
    findings.raise_if_blocked()
    return listed
