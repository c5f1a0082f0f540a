"""Marks that leave people or runs out: the column ``exclude`` of a site's tables of people.

One column is read.  Whatever else looks like a mark is refused until the site says that it is none:
a mark that is overlooked would take somebody in who must not be.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cape.counting import number_of
from cape.data.bids import Entities, has_all
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.names import normal
from cape.data.runs import Mention, SiteRun
from cape.data.tables import EMPTY_CELLS, PERSON, PersonRow, column_names, places_of, rows_of_people
from cape.delimited import Line
from cape.frozen import dataclass
from cape.settings.words import parse_exclusions

EXCLUDE: Final = "exclude"
YES: Final = frozenset(("1", "true", "yes"))
NO: Final = frozenset(("0", "false", "no", *EMPTY_CELLS))
_RUN: Final = r"(?:(?:ses|task|acq|dir|run)-[A-Za-z0-9]+(?:\+[A-Za-z0-9]+)*)"
_RUNS: Final = re.compile(rf"{_RUN}(?:[_,]\s*{_RUN})*")
# Texts of letters and digits alone, in small letters.
_MARK: Final = re.compile(
    r"exclu(?!siv)|inclu(?!siv)|withdr|consent|opt(?:ed|ing)?out|dropp?(?:ed|ing)?out|donotuse|dontuse"
    r"|donotinclude|notusable|unusable|qc[a-z]*fail|fail[a-z]*qc|reject|discard|ineligib|noteligib"
    r"|discontinu|terminated|losttofollow|ausgeschlossen|ausschluss|einwilligung|zurückgezogen"
)
_MARK_HEADER: Final = re.compile(
    r"qc[a-z]*\d*|(?:is|to|qc|mri|fmri|rest|scan|data)*"
    r"(?:qc|excl|keep|kept|use|used|usable|valid|invalid|bad|good|ok|pass|passed|fail|failed|drop"
    r"|dropped|remove|removed|omit|omitted|outliers?|skip|skipped|ignore|ignored|eligible)"
    r"(?:qc|flag|status|mri|fmri|rest|scan|data|this|run|reason)*\d*"
)
_MARK_CELL: Final = re.compile(
    r"excl|dropped|removed|omitted|skipped|ignored?|donotscan|fail|failed|bad|refused|declined"
)
# A number, of whose letters no mark consists: most cells of most tables
_NUMBER: Final = re.compile(r"[\d\s.,+eE-]*", re.ASCII)
# Beside the lists that are read: another of their names, in any format of a table
_SECOND_LIST: Final = re.compile(r"(?:participants|manifest)[^/]*\.(?:tsv|csv|txt|xlsx?|ods)", re.I)
_LIST_ENDS: Final = (".tsv", ".csv", ".txt", ".xls", ".xlsx", ".ods")


# A run, by its file and its row there
RunKey = tuple[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowMarks:
    """One row of a table of people: whom it names, and what it leaves out."""

    where: Mention
    label: str  # in normal form
    everything: bool = False
    runs: tuple[Entities, ...] = ()  # as in `bids_exclude`

    def leaves_out(self, entities: Mapping[str, str]) -> bool:
        return self.everything or any(has_all(entities, part) for part in self.runs)


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkTable:
    """A table of people of the site, as far as it leaves somebody out."""

    name: str
    rows: tuple[RowMarks, ...]
    has_column: bool  # whether there is a column ``exclude``

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(row.label for row in self.rows)


def exclude_says(cell: str) -> bool | None:
    """Tell whether a cell leaves out; None: it may name runs.  `UnusableFile`: another word."""
    word = cell.strip().strip("\"'").strip()
    if _RUNS.fullmatch(word):
        return None
    # pandas writes 1.0 for 1 if another cell is empty; some spreadsheets write 1,0.
    word = re.sub(r"^([01])[.,]0+$", r"\1", word.lower())
    if word not in YES | NO:
        raise UnusableFile(IssueCode.MARK_UNCLEAR, f"'{cell[:40]}' in column {EXCLUDE}")
    return word in YES


def looks_like_a_mark(text: str, *, header: bool = False) -> bool:
    """Tell whether a header or a cell may mean to leave somebody out."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    word = "".join(sign for sign in folded if sign.isalnum())
    whole = _MARK_HEADER if header else _MARK_CELL
    return bool(_MARK.search(word) or whole.fullmatch(word))


def column_places(header: Sequence[str]) -> dict[str, int]:
    """Return where each column stands, by its name in small letters; `UnusableFile`: one twice."""
    names = column_names(header)
    counts = Counter(names)
    for name in (PERSON, EXCLUDE):
        if counts[name] > 1:
            raise UnusableFile(IssueCode.COLUMN_TWICE, f"{counts[name]} columns {name}")
    return {name: place for place, name in enumerate(names)}


def check_no_other_marks(
    header: Sequence[str], rows: Iterable[tuple[Line, Sequence[str]]], not_marks: Collection[str]
) -> None:
    """Raise `UnusableFile` if a header or a cell beside ``exclude`` looks like a mark.

    A cell of a row that is left out may say why.
    """
    exclude = column_places(header).get(EXCLUDE)
    others = {}
    for place, name in enumerate(header):
        column = name.lstrip("\ufeff").strip()
        if column.lower() not in (PERSON, EXCLUDE, "file") and column.lower() not in not_marks:
            others[place] = column
    for column in others.values():
        if looks_like_a_mark(column, header=True):
            raise _mark(column, f"column '{column[:40]}'")
    judged: set[tuple[int, str]] = set()
    for line, cells in rows:
        with suppress(UnusableFile):  # noted with its line where the row is read
            if exclude is not None and exclude_says(cells[exclude]):
                continue
        for place, column in others.items():
            cell = cells[place]
            if _NUMBER.fullmatch(cell) or (place, cell) in judged:
                continue
            if looks_like_a_mark(cell):
                raise _mark(column, f"line {line.number}: '{cell[:40]}' in column '{column[:40]}'")
            judged.add((place, cell))


def _mark(column: str, observed: str) -> UnusableFile:
    return UnusableFile(IssueCode.MARK_ELSEWHERE, observed, name=column[:40])


def read_marks(
    path: Path, name: str, findings: Findings, not_marks: Collection[str] | None = ()
) -> MarkTable | None:
    """Return what a table of people leaves out; None after noting why it cannot be used.

    With `not_marks` None nothing but its column ``exclude`` is judged: nobody asked for the rest.
    A row that cannot be read is noted with its line, and its person stays.
    """
    try:
        header, rows = rows_of_people(path)
        return _marks(header, list(rows), name, findings, not_marks)
    except OSError as err:
        findings.add(IssueCode.FILE_UNREADABLE, f"{name}: {err.strerror or 'not there'}")
    except UnusableFile as verdict:
        findings.add_issue(verdict.issue, name)
    return None


def marks_of_records(path: Path, name: str, not_marks: Collection[str] = ()) -> MarkTable:
    """Return what a table of records leaves out, whose first column names the people.

    `UnusableFile`: a header or a cell of ``exclude`` is not clear.
    """
    header, rows = rows_of_people(path)
    places = column_places(header)
    for column in header[1:]:
        low = column.lower()
        if low != EXCLUDE and low not in not_marks and looks_like_a_mark(column, header=True):
            raise _mark(column, f"column '{column[:40]}'")
    marks = []
    for row in rows if EXCLUDE in places else ():
        if row.cells:
            where = Mention(name, row.line.number)
            try:
                says = exclude_says(row.cell(places[EXCLUDE]))
            except UnusableFile as verdict:
                observed = f"line {row.line.number}: {verdict.issue.observed}"
                raise UnusableFile(verdict.issue.code, observed) from None
            if says is None:
                observed = f"line {row.line.number}: a row has no runs to name"
                raise UnusableFile(IssueCode.MARK_UNCLEAR, observed)
            marks.append(RowMarks(where=where, label=normal(row.cells[0]), everything=says))
    return MarkTable(name=name, rows=tuple(marks), has_column=EXCLUDE in places)


def _marks(
    header: Sequence[str],
    rows: Sequence[PersonRow],
    name: str,
    findings: Findings,
    not_marks: Collection[str] | None,
) -> MarkTable | None:
    places = column_places(header)
    if not_marks is None and EXCLUDE not in places:
        return None
    person, _ = places_of(header, ())
    if not_marks is not None:
        readable = [(row.line, row.cells) for row in rows if row.cells]
        check_no_other_marks(header, readable, not_marks)
    found_rows: dict[str, RowMarks] = {}
    for row in rows:
        where = Mention(name, row.line.number)
        try:
            if row.issue:
                is_text = row.issue.code is IssueCode.TABLE_NOT_UTF8
                code = IssueCode.ROW_NOT_UTF8 if is_text else IssueCode.ROW_BROKEN
                findings.add(code, f"{where}: {row.issue.observed}")
            if not row.cells:
                continue
            label = normal(row.label(name, person))
            marks = _row(where, label, row, places)
            before = found_rows.setdefault(label, marks)
            if (before.everything, before.runs) != (marks.everything, marks.runs):
                raise UnusableFile(IssueCode.MARKED_TWICE, f"'{label}' stands above, too")
        except UnusableFile as verdict:
            findings.add_issue(verdict.issue, str(where))
    return MarkTable(name=name, rows=tuple(found_rows.values()), has_column=EXCLUDE in places)


def _row(where: Mention, label: str, row: PersonRow, places: Mapping[str, int]) -> RowMarks:
    cell = row.cell(places[EXCLUDE]) if EXCLUDE in places else ""
    says = exclude_says(cell)
    runs = parse_exclusions(cell.strip().strip("\"'")) if says is None else ()
    return RowMarks(where=where, label=label, everything=bool(says), runs=runs)


def note_second_lists(
    folder: Path, read: Collection[str], findings: Findings, not_marks: Collection[str]
) -> None:
    """Note files of a folder that look like further lists of people or of marks."""
    for name in sorted(path.name for path in folder.iterdir() if not path.is_dir()):
        low = name.lower()
        if (
            low.startswith((".", "~$", "#"))
            or low.endswith("~")
            or low in not_marks
            or name in read
        ):
            continue
        stem = low.rpartition(".")[0]
        second = _SECOND_LIST.fullmatch(low) is not None
        if second or (low.endswith(_LIST_ENDS) and looks_like_a_mark(stem)):
            findings.add(IssueCode.LIST_BESIDE, name, name=name)


def left_out_by(
    runs: Sequence[SiteRun],
    tables: Sequence[MarkTable],
    entities: Mapping[str, Mapping[str, str]],
    findings: Findings,
) -> dict[RunKey, Mention]:
    """Return the line that leaves out each run, by name and row; labels are those of `runs`.

    `entities`: of each run by its name, ``ses`` and ``run`` of a list included.
    """
    by_person: dict[str, list[SiteRun]] = {}
    for run in runs:
        by_person.setdefault(run.person, []).append(run)
    out: dict[RunKey, Mention] = {}
    for table in tables:
        marked = [row for row in table.rows if row.everything or row.runs]
        if table.has_column and table.rows and runs and not table.labels & set(by_person):
            observed = f"{table.name}: {number_of(len(table.rows), 'name')} such as "
            observed += (
                f"'{table.rows[0].label}', none of {number_of(len(by_person), 'person')} here"
            )
            findings.add(IssueCode.PEOPLE_OTHER, observed, example=next(iter(by_person)))
        for row in marked:
            if row.label not in by_person:
                # Their files may be gone on purpose.
                findings.add(IssueCode.PERSON_ABSENT, f"{row.where}: '{row.label}'")
                continue
            of_person = by_person[row.label]
            _check_runs(row, [entities[run.name] for run in of_person], findings)
            for run in of_person:
                if row.leaves_out(entities[run.name]):
                    out.setdefault((run.name, run.row), row.where)
    return out


def _check_runs(row: RowMarks, there: Sequence[Mapping[str, str]], findings: Findings) -> None:
    for part in row.runs:
        if any(has_all(entities, part) for entities in there):
            continue
        words = "_".join(f"{key}-{text}" for key, text in part)
        keys = {key for key, _ in part}
        named = sorted({f"{k}-{v}" for entities in there for k, v in entities.items() if k in keys})
        has = f", who has {', '.join(named[:6])}" if named else ""
        place = f"{row.where}: '{words}' of '{row.label}'{has}"
        findings.add(IssueCode.MARKED_RUN_ABSENT, place)


def lines_said(
    people: Mapping[str, Sequence[Mention | None]], tables: Sequence[str], *, all_read: bool
) -> Iterator[str]:
    """Yield what is always said: who is left out by which lines, or that nobody is.

    `people`: for each person the line that leaves out each run.  `tables`: those with ``exclude``.
    `all_read`: without it there may be marks that nobody could read.
    """
    whole = {who for who, lines in people.items() if lines and all(lines)}
    anybody = False
    for table in tables:
        of_whole = [m for who in whole for m in people[who] if m and m.table == table]
        others = [m for who in people.keys() - whole for m in people[who] if m and m.table == table]
        anybody |= bool(of_whole or others)
        if of_whole:
            n = sum(any(m and m.table == table for m in people[who]) for who in whole)
            verb = "is" if n == 1 else "are"
            yield f"{n} of {len(people)} people {verb} left out: {table}{_lines(of_whole)}"
        if others:
            runs = f"{len(others)} {'single runs' if len(others) > 1 else 'single run'}"
            yield f"{runs} {'are' if len(others) > 1 else 'is'} left out: {table}{_lines(others)}"
    if all_read and not anybody:
        why = (
            f"{EXCLUDE} marks no row of {', '.join(tables)}" if tables else f"no column `{EXCLUDE}`"
        )
        yield f"nobody is left out: {why}"


def _lines(mentions: Sequence[Mention]) -> str:
    lines = sorted({mention.line for mention in mentions})
    return f", line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"
