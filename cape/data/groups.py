"""Variables and outcomes of every person of a site, for a comparison; private.

A cell that cannot be read or understood is missing: its person stays counted, and only the site
learns of it.  Faults of a table itself stop the site: a column that no table or several have, or
names that fit no person.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cape.algorithms.design import Counts, cell_of, coded, counted, counts_of, in_units, people_rows
from cape.algorithms.estimators import Array, Data
from cape.algorithms.person_outcomes import outcomes_of_person
from cape.counting import number_of
from cape.data import tables
from cape.data.checks import Subject
from cape.data.columns import FEWEST_CELLS, SHOWN, SeenColumn, seen_outcome, seen_variable, tell
from cape.data.gift import read_gift, read_gift_names
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.names import bare, likeness, one_label_each
from cape.data.person_tables import lacking, levels_here, table_of_outcomes, tables_with
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.measures import Measure, outcome_names
from cape.settings.own_words import OwnWords
from cape.settings.question import Question, Variable, parse_number, plain


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Compared:
    """Variables and outcomes of the people whom a site lists, in the order of its list."""

    labels: tuple[str, ...]
    codes: Mapping[str, Array]  # by variable, (people,) as `Variable.code` gives them
    u: Array  # (people, K) outcomes in public units, NaN where missing
    public: tuple[str, ...] = ()  # the public columns, as the site's tables call them

    def rows(self, question: Question) -> tuple[tuple[str, ...], Data]:
        """Return labels and rows (people, K + 1 + C) in public order."""
        names = [bare(label) for label in self.labels]
        order, rows = people_rows(question, names, self.u, self.codes)
        return tuple(self.labels[i] for i in order), rows

    def said(self, question: Question, least: int) -> tuple[Counts, tuple[int, ...]]:
        """Return the public cells (people,) and the counts that the site says (`counted`)."""
        return counted(question, cell_of(question, self.codes, len(self.labels)), least)

    def note_few(self, question: Question, least: int, findings: Findings) -> None:
        """Note the public cells with fewer people than the site says."""
        cell = cell_of(question, self.codes, len(self.labels))
        for levels, n in zip(question.cells, counts_of(question, cell), strict=True):
            if question.public and 0 < n < least:
                names = " ".join(map(" ".join, zip(self.public, levels, strict=True)))
                findings.add(IssueCode.GROUP_FEW, f"{names}: {n}, min_group = {least}")

    def adds_nothing(
        self, question: Question, least: int, *, measured: bool = True
    ) -> dict[str, str]:
        """Return who adds only zeros, and why: not asked, no column of the formula, no outcome.

        `least`: min_group.  `measured`: whether outcomes of images are here; without them nobody is
        said to have none.
        """
        cell, asked = cell_of(question, self.codes, len(self.labels)), self.said(question, least)[0]
        no_column = np.isnan(coded(question, self.codes)).any(axis=1)
        no_outcome = np.isnan(self.u).all(axis=1) & (measured or question.of_tables)
        # The first of these that holds for a person is said.
        reasons = {
            "no level of a public column": cell < 0,
            f"fewer than {least} people of one public level; min_group": asked < 0,
            "a column of the formula is missing": no_column,
            "no outcome": no_outcome,
        }
        said: dict[str, str] = {}
        for reason, people in reasons.items():
            for m in np.flatnonzero(people).tolist():
                said.setdefault(self.labels[m], reason)
        return said

    @property
    def digest(self) -> bytes:
        """SHA-256 of all that is read here; never leaves the site."""
        content = hashlib.sha256(json.dumps(self.labels).encode())
        for values in (*self.codes.values(), self.u):
            content.update(np.ascontiguousarray(values).tobytes())
        return content.digest()


def read_compared(
    base: Path,
    words: OwnWords,
    question: Question,
    listed: Sequence[str],
    findings: Findings,
    *,
    stop: bool = True,
) -> Compared:
    """Return variables and outcomes of the people whom a site lists, from its tables or GIFT.

    Outcomes of images are NaN here (`of_images`).  Faults go to `findings`, which are the site's
    own; without a usable table all values are NaN.  `stop`: whether a column that the site cannot
    use stops it.
    """
    columns = [one.name for one in question.variables if one.name not in question.of_runs]
    cells = dict.fromkeys(columns, [""] * len(listed))
    outcomes, whole, is_lost = _Outcomes(question, len(listed)), list[str](), False
    if listed:
        if question.of_tables:
            outcomes.read(base, words, listed, findings, stop=stop)
        try:
            # Where the rows of that table are torn, nobody has the names that it gives.
            places = {} if outcomes.is_torn and stop else tables_with(base, words, columns)
        except UnusableFile as verdict:
            findings.add_issue(verdict.issue)
            # The site stops, and is told the faults of all its columns in one go.
            places, is_lost = _tables_of_each(base, words, columns), True
        for name in question.of_runs:
            with suppress(UnusableFile):
                (place,) = tables_with(base, words, [name])
                findings.add(IssueCode.COLUMN_OF_RUNS, f"{name} of {place}")
        for name, own in places.items():
            try:
                table = _Table(base, name, words, listed, findings, stop=stop)
                cells |= _cells(table, own, question)
                whole += [] if table.is_torn else own  # the site is told of the table as a whole
            except UnusableFile as verdict:
                findings.add_issue(verdict.issue, name)
    codes = {}
    for one in question.variables:
        codes[one.name] = one.code(cells.get(one.name, [""] * len(listed)))
    compared = Compared(
        labels=tuple(listed),
        codes=codes,
        u=outcomes.u,
        public=tuple(map(words.column, question.public)),
    )
    asked = np.flatnonzero(cell_of(question, codes, len(listed)) >= 0).tolist()
    everybody = list(range(len(listed)))
    for name in sorted(whole, key=lambda name: name not in question.public):
        # Whoever is of no level has no row in the question, and may lack any other column.
        of_all = name in question.public and not (asked and question.among_column == name)
        people = everybody if of_all or is_lost else asked
        labels, own_cells = [listed[m] for m in people], [cells[name][m] for m in people]
        seen = seen_variable(question.variable(name), labels, own_cells)
        others = (one for one in question.public if one in cells and one != name)
        is_fault = tell(
            seen,
            words,
            findings,
            stops=stop,
            only_faults=is_lost and not of_all,
            groups={other: [cells[other][m] for m in people] for other in others},
        )
        # Without its levels nobody can tell who is asked; all faults are told in one go.
        is_lost |= is_fault and name in question.public
    for seen in outcomes.seen(listed, everybody if is_lost else asked):
        tell(seen, words, findings, stops=stop, only_faults=is_lost, groups={})
    return compared


def _tables_of_each(base: Path, words: OwnWords, columns: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns that a table has, by its name, without the others."""
    found: dict[str, list[str]] = {}
    for column in columns:
        with suppress(UnusableFile):
            (name,) = tables_with(base, words, [column])
            found.setdefault(name, []).append(column)
    return found


# -- tables --------------------------------------------------------------------------------------


class _Table:
    """A table of people, read row by row for the people who are listed."""

    def __init__(
        self,
        base: Path,
        name: str,
        words: OwnWords,
        listed: Sequence[str],
        findings: Findings,
        *,
        stop: bool,
    ) -> None:
        self.name, self.listed, self.findings, self.words = name, listed, findings, words
        path = base / name
        self._header, each = tables.rows_of_people(path, comments=True)
        self._rows = list(each)
        self.is_torn = self._is_torn(stop=stop)
        own = list(map(bare, tables.row_labels(self._header, self._rows, path.name)))
        here = list(map(bare, listed))
        stands_for = one_label_each({*own, *here}, words)
        index = {stands_for[label]: m for m, label in enumerate(here)}
        self._people = [index.get(stands_for[label]) for label in own]
        there = {stands_for[label]: label for label in own}
        if self.is_torn and stop:
            return
        if not there.keys() & index.keys():
            observed = f"{number_of(len(there), 'name')} such as '{own[0]}', none of "
            observed += f"{number_of(len(listed), 'person')} here"
            raise UnusableFile(IssueCode.GROUP_OTHER, observed, example=listed[0])
        near_names = {likeness(label): label for label in there.values()}
        for label, name_here in zip(listed, here, strict=True):
            if stands_for[name_here] not in there:
                other = near_names.get(likeness(name_here))
                hint = f" (did you mean '{other}' there?)" if other else ""
                findings.add(IssueCode.PERSON_NOWHERE, f"'{label}': not in {name}{hint}")

    def _is_torn(self, *, stop: bool) -> bool:
        """Tell whether most rows have other cells than the header, after noting it."""
        header, widths = self._header, [row.width for row in self._rows]
        odd = Counter(width for width in widths if width != len(header))
        if len(widths) < FEWEST_CELLS or 2 * odd.total() <= len(widths):
            return False
        width, n = odd.most_common(1)[0]
        place = f"{self.name}: {n} of {len(widths)} rows have {width} cells, not {len(header)}"
        remedy = "give every row as many cells as the header"
        if width == len(header) + 1:
            place += ": is the header one cell short?"
            remedy = "write the missing name into the header, or write the table again: without "
            remedy += "names of rows (R: row.names = FALSE), with decimal points"
        self.findings.add(
            IssueCode.TABLE_WIDTH, place, public={"what": "a table"}, stops=stop, remedy=remedy
        )
        return True

    def places(self, columns: Sequence[str]) -> list[int]:
        return tables.places_of(self._header, list(map(self.words.column, columns)))[1]

    def rows(self, question: Question) -> Iterator[tuple[int, str, tables.PersonRow, int]]:
        """Yield whose each row is (an index), its session as `plain` gives it, itself, its width.

        The session is empty unless the question is of a change and the row is of one of its two.
        """
        names, width = tables.column_names(self._header), len(self._header)
        wanted = [plain(name) for name in question.change or ()]
        place = names.index(tables.SESSION) if wanted and tables.SESSION in names else None
        for m, row in zip(self._people, self._rows, strict=True):
            if m is None:
                continue
            session = ""
            if place is not None:
                cell = row.known_cell(place, width, lambda cell: _session(cell) in wanted)
                session = _session(cell)
            yield m, session, row, width


def _session(cell: str) -> str:
    return plain(cell.strip().removeprefix("ses-"))


def _cells(table: _Table, columns: Sequence[str], question: Question) -> dict[str, list[str]]:
    """Return the cells of some columns, one a person; "" where missing or contradictory.

    Of a change, rows of the earlier session decide where a person has one; else all rows of a
    person must agree.  What is said of a public column hangs on its own cells alone.
    """
    first = plain(question.change[0]) if question.change else None
    n = len(table.listed)
    said: dict[str, list[dict[str, str]]] = {name: [{} for _ in range(n)] for name in columns}
    early: dict[str, list[dict[str, str]]] = {name: [{} for _ in range(n)] for name in columns}
    has_first = [False] * n
    places = table.places(columns)
    ours = {name: OurWords(question.variable(name), table.words) for name in columns}
    for m, session, row, width in table.rows(question):
        is_first = session == first
        has_first[m] |= is_first
        for name, place in zip(columns, places, strict=True):
            cell = _cell(row, place, width, ours[name], public=name in question.public)
            if cell:
                said[name][m][plain(cell)] = cell
                if is_first:
                    early[name][m][plain(cell)] = cell
    found = {}
    for name in columns:
        each = [early[name][m] if has_first[m] else said[name][m] for m in range(n)]
        found[name] = [next(iter(one.values())) if len(one) == 1 else "" for one in each]
        twice = [label for label, one in zip(table.listed, each, strict=True) if len(one) > 1]
        if twice:
            shown = f"{name}: {len(twice)} of {n}, such as {', '.join(twice[:SHOWN])}"
            table.findings.add(IssueCode.GROUP_TWICE, shown)
    return found


class OurWords:
    """The cells of a column in the words and the unit of the owner."""

    def __init__(self, variable: Variable, words: OwnWords) -> None:
        self._variable, self._read = variable, words.reader(variable.name)
        self._levels = {} if variable.is_range else levels_here(variable, words)
        self._plain = {plain(level) for level in variable.levels}

    def of(self, cell: str) -> str:
        if self._variable.is_range:
            value = self._read(cell)
            is_same = not math.isfinite(value) or value == parse_number(cell)
            return cell if is_same else repr(value)
        level = self._levels.get(plain(cell))
        # A word that the site has given to another level is none of its own.
        return level or (f"'{cell}'" if plain(cell) in self._plain else cell)

    def is_value(self, cell: str) -> bool:
        if self._variable.is_range:
            return math.isfinite(self._read(cell))
        return plain(cell) in self._levels


def _cell(row: tables.PersonRow, place: int, width: int, ours: OurWords, *, public: bool) -> str:
    """Return a cell of a variable in the owner's words; "" if it is missing or cannot be read."""
    if public:
        cell = row.known_cell(place, width, ours.is_value)
    else:
        try:
            cell = row.cell(place)
        except UnusableFile:
            return ""
    cell = cell.strip()
    return "" if cell.lower() in tables.MISSING_CELLS and not ours.is_value(cell) else ours.of(cell)


class _Outcomes:
    """The outcomes of n people: u (n, K) in public units, NaN where missing."""

    def __init__(self, question: Question, n: int) -> None:
        self.question = question
        self.u = np.full((n, len(question.outcomes)), np.nan)
        self.others: dict[int, dict[int, str]] = {}  # by outcome that was read: cells of people
        self.is_torn = False

    def read(
        self, base: Path, words: OwnWords, listed: Sequence[str], findings: Findings, *, stop: bool
    ) -> None:
        """Read them from a table or from GIFT's results; faults of the file go to `findings`."""
        name, question = "", self.question
        try:
            name = table_of_outcomes(base, words, question)
            if question.measure is not None:
                values = _of_gift(base / name, words, question.measure, listed)
                self.u = in_units(question.outcomes, values)
                return
            table = _Table(base, name, words, listed, findings, stop=stop)
            lacks = lacking(question, words)
            there = [k for k, one in enumerate(question.outcomes) if one.name not in lacks]
            others: dict[int, dict[int, str]] = {k: {} for k in there}
            numbers = _numbers(table, question, others)
            self.u = in_units(question.outcomes, *reversed(numbers.values()))
            self.is_torn, self.others = table.is_torn, {} if table.is_torn else others
        except UnusableFile as verdict:
            findings.add_issue(verdict.issue, name)

    def seen(self, listed: Sequence[str], asked: Sequence[int]) -> Iterator[SeenColumn]:
        """Yield the outcomes that were read, of the people who are asked."""
        labels, place = [listed[m] for m in asked], {m: i for i, m in enumerate(asked)}
        for k, cells in self.others.items():
            odd = {
                place[m]: cell for m, cell in cells.items() if m in place and np.isnan(self.u[m, k])
            }
            yield seen_outcome(self.question.outcomes[k], labels, self.u[list(asked), k], odd)


def _numbers(
    table: _Table, question: Question, others: Mapping[int, dict[int, str]]
) -> dict[str, Array]:
    """Return outcomes (people, K) in natural units by session: the earlier and the later one.

    Without a change there is one session, of an empty name.  Numbers of the outcomes in `others`
    are read, which gets the cells that are no numbers, by person; a person with two numbers for one
    outcome has none.
    """
    sessions = [plain(name) for name in question.change or ("",)]
    shape = len(table.listed), len(question.outcomes)
    values = {session: np.full(shape, np.nan) for session in sessions}
    clash = {session: np.zeros(shape, dtype=bool) for session in sessions}
    names = [question.outcomes[k].name for k in others]
    places, readers = table.places(names), list(map(table.words.reader, names))
    for m, session, row, _ in table.rows(question):
        if session not in values:
            continue
        new = np.full(shape[1], np.nan)
        for k, place, read in zip(others, places, readers, strict=True):
            try:
                cell = row.cell(place).strip()
            except UnusableFile:  # the row or the text cannot be read
                cell = "?"
            new[k] = read(cell)
            if math.isnan(new[k]) and cell.lower() not in tables.MISSING_CELLS:
                others[k][m] = cell
        old = values[session][m]
        clash[session][m] |= np.isfinite(old) & np.isfinite(new) & (old != new)
        values[session][m] = np.where(np.isnan(old), new, old)
    for session, twice in clash.items():
        values[session][twice] = np.nan
    return values


def _of_gift(path: Path, words: OwnWords, measure: Measure, listed: Sequence[str]) -> Array:
    """Return the outcomes (people, K) of GIFT's results, in natural units; `UnusableFile`."""
    own, here = list(map(bare, read_gift_names(path))), list(map(bare, listed))
    values = read_gift(path, measure, len(own))
    stands_for = one_label_each({*own, *here}, words)
    row_of = {stands_for[label]: i for i, label in enumerate(own)}
    return values[[row_of[stands_for[label]] for label in here]]


# -- images --------------------------------------------------------------------------------------


def of_images(
    people: Compared,
    question: Question,
    measure: Measure,
    subjects: Sequence[Subject],
    courses: Iterable[tuple[str, Data]],
    config: Config,
) -> Compared:
    """Return people with the outcomes and columns that follow from their runs.

    `courses` are label and time courses (R, T) of public maps; who has none lacks all outcomes.
    """
    known = {subject.label: subject for subject in subjects}
    values = {"": np.full(people.u.shape, np.nan)}
    if question.change:
        values = {plain(name): np.full(people.u.shape, np.nan) for name in question.change}
    index = {label: m for m, label in enumerate(people.labels)}
    for label, S in courses:
        for session in values if label in known else ():
            own, tr = _of_session(known[label], S, session, config)
            values[session][index[label]] = _measured(measure, own, tr)
    each = [known.get(label) for label in people.labels]
    of_runs: dict[str, list[object]] = {
        "mean_fd": [one.mean_fd if one else None for one in each],
        "n_volumes": [one.n_timepoints if one else None for one in each],
    }
    codes = {name: question.variable(name).code(of_runs[name.lower()]) for name in question.of_runs}
    u = in_units(question.outcomes, *reversed(values.values()))
    return replace(people, codes={**people.codes, **codes}, u=u)


def _measured(measure: Measure, S: Data, tr: float) -> Array:
    """Return the outcomes (K,) of courses (R, T); NaN where one cannot be computed."""
    # A failure of the arithmetic depends on one person's courses, so it is not reported.
    try:
        with np.errstate(all="ignore"):
            return outcomes_of_person(measure, S.astype(np.float64), tr)
    except Exception:
        return np.full(len(outcome_names(measure)), np.nan)


def short_session(subject: Subject, question: Question, config: Config) -> str:
    """Return which session of a change has too few volumes, "ses-2 has 92"; "" if none has."""
    n_times = min(subject.n_timepoints, config.max_timepoints or subject.n_timepoints)
    for session in question.change or ():
        n = int(_volumes_of(subject, n_times, plain(session), config)[0].sum())
        if n < config.min_timepoints:
            return f"ses-{session} has {n or 'none'}"
    return ""


def _of_session(subject: Subject, S: Data, session: str, config: Config) -> tuple[Data, float]:
    """Return the courses of one session, all for an empty name, and its repetition time in s.

    0 s if it is not known or runs differ.  No volume of a session that is too short.
    """
    stay, tr = _volumes_of(subject, S.shape[1], session, config)
    if session and stay.sum() < config.min_timepoints:
        stay[:] = False
    return (S[:, stay] if session else S), tr


def _volumes_of(
    subject: Subject, n_times: int, session: str, config: Config
) -> tuple[npt.NDArray[np.bool_], float]:
    """Return which of the used volumes are of a session, and its repetition time as above."""
    ends = np.cumsum((0, *subject.n_volumes))
    out = np.array(subject.left_out, dtype=int)
    stay, trs, last = np.zeros(n_times, dtype=bool), set(), 0
    for run, tr, start, end in zip(subject.runs, subject.trs, ends[:-1], ends[1:], strict=True):
        first, last = last, last + int(end - start - np.sum((start <= out) & (out < end)))
        if not session or _session(run.session) == session:
            stay[first:last] = True
            trs.add(tr or config.tr)
    return stay, trs.pop() if len(trs) == 1 else 0.0
