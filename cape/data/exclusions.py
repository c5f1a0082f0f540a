"""People and runs that the lists of a site leave out.

A mark that is not understood is refused with its line; it never lets a person in.  Headers that are
nearly right, names that fit no person, and files that look like a second list are refused as well.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Final, Literal

from cape.data.bids import Entities, entities_of, has_all, natural_key
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.runs import NOWHERE, ListedRun, Mention, leads_out
from cape.data.tables import bounded, cells_of_row, line_cells, table_cells, table_lines
from cape.delimited import Line, delimiter_of
from cape.frozen import dataclass
from cape.settings.words import parse_exclusions

PARTICIPANTS: Final = "participants.tsv"
MANIFEST_NAMES: Final = ("manifest.csv", "manifest.tsv")
PERSON: Final = "participant_id"

# These words have the same meaning in both columns.
LEFT_OUT_WORDS: Final = frozenset(("exclude", "excluded", "out", "drop", "dropped"))
IN: Final = frozenset(("include", "included", "in", "keep", "kept"))
YES: Final = frozenset(("1", "true", "t", "yes", "y", "x", "on"))
NO: Final = frozenset(("0", "false", "f", "no", "n", "off"))
EMPTY_CELLS: Final = frozenset(("", "n/a", "na", "nan", "none", "null", "-", "."))
_RUN: Final = r"(?:(?:ses|task|acq|dir|run)-[A-Za-z0-9]+(?:\+[A-Za-z0-9]+)*)"
RUNS: Final = re.compile(rf"{_RUN}(?:[_,]\s*{_RUN})*")
Side = Literal["exclude", "include"]
Mark = Literal["out", "in", "silent", "runs"]

_FRONT = "(?:is|to|qc|mri|fmri|rest|scan)?"
_END = r"(?:this|flag|reason|mri|fmri|rest|scan)?\d?"
NEAR_EXCLUDE: Final = re.compile(
    rf"{_FRONT}(?:excl(?!usiv)[a-z]*|removed?|omit(?:ted)?|drop(?:ped|out)?|reject(?:ed)?"
    rf"|withdr[a-z]*|outlier|bad|ausgeschlossen){_END}"
)
NEAR_INCLUDE: Final = re.compile(
    rf"{_FRONT}(?:incl(?:uded?|usion|udes)?|used?|usable|keep|valid|pass(?:ed)?|ok|good"
    rf"|consent(?:ed)?){_END}|qc|qcstatus"
)
NEAR_PERSON: Final = re.compile(
    r"(?:participants?|subjects?|subj?|patients?|bids|person|people)?(?:id|name|label|no|nr)?"
    r"|guid|bblid|eid|rid|ptid"
)
# Similarity from which a name counts as a mistyped form of another.
MISTYPED: Final = 0.85
NEAR_LIST: Final = re.compile(
    r"(?:participants?|subjects?|people|manifest|excl[a-z]*|included?|dropouts?|withdrawn)"
    r"(?:list|ids?|subjects?|participants?|people)?\d*(?:tsv|csv|txt|xlsx?|ods)+"
)


def yes_or_no(cell: str, column: str) -> bool | None:
    """Return the answer of a cell, None if it is empty; `UnusableFile`: neither yes nor no."""
    word = _word(cell)
    if word in EMPTY_CELLS:
        return None
    if word in YES or word in NO:
        return word in YES
    raise UnusableFile(IssueCode.MARK_UNCLEAR, f"'{cell[:40]}' in column {column}")


def mark_of(cell: str, side: Side) -> Mark:
    """Return the mark in a cell of column `side`; `UnusableFile`: neither yes nor no.

    "out": left out.  "in": takes part.  "runs": the cell names runs, such as ``ses-2``.
    """
    word = _word(cell)
    if word in LEFT_OUT_WORDS or word in IN:
        return "out" if word in LEFT_OUT_WORDS else "in"
    if RUNS.fullmatch(_unquoted(cell)):
        return "runs"
    says = yes_or_no(cell, side)
    return "silent" if says is None else "out" if says == (side == "exclude") else "in"


def _unquoted(cell: str) -> str:
    return cell.strip().strip("\"'").strip()


def _word(cell: str) -> str:
    # pandas writes 1.0 for 1 if another cell is empty; some spreadsheets write 1,0.
    return re.sub(r"^0*([01])(?:[.,]0+)?$", r"\1", _unquoted(cell).lower())


def column_of(header: str, not_exclusions: Collection[str] = ()) -> str:
    """Return the use of a column; `UnusableFile`: its name is nearly one of those.

    The site's own file may list columns as `not_exclusions` (in lower case).
    """
    exact = header.lstrip("\ufeff").strip().lower()
    if exact in ("exclude", "include", PERSON):
        return "person" if exact == PERSON else exact
    if exact in not_exclusions:
        return ""
    word = letters_and_digits(header)
    if NEAR_EXCLUDE.fullmatch(word) or mistyped(word, ("exclude", "excluded")):
        wanted = "exclude (1 = left out)"
    elif NEAR_INCLUDE.fullmatch(word) or mistyped(word, ("include", "included")):
        wanted = "include (1 = takes part)"
    else:
        return ""
    raise nearly(header, wanted)


def nearly(header: str, wanted: str) -> UnusableFile:
    """Return the refusal of a column whose name is nearly one that is read."""
    shown = header.strip()[:40]
    other = f"notes_{letters_and_digits(header)}"
    return UnusableFile(IssueCode.LIST_COLUMN, f"'{shown}'", wanted=wanted, name=shown, other=other)


def letters_and_digits(text: str) -> str:
    """Return the letters and digits of a text, in lower case."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def mistyped(word: str, names: Sequence[str]) -> str:
    return next(iter(difflib.get_close_matches(word, names, n=1, cutoff=MISTYPED)), "")


def sides_of(header: Sequence[str], not_exclusions: Collection[str] = ()) -> dict[str, int]:
    """Return where ``exclude``, ``include`` and ``person`` stand; `UnusableFile`, also if twice."""
    kinds = [column_of(name, not_exclusions) for name in header]
    for kind, count in Counter(kinds).items():
        if kind and count > 1:
            raise UnusableFile(IssueCode.COLUMN_TWICE, f"{count} columns for {kind}")
    return {kind: position for position, kind in enumerate(kinds) if kind}


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """One line of a list: entities of runs as in `bids_exclude`; `only`: keep these alone."""

    where: Mention
    name: str  # as written there
    listed: bool = True
    only: tuple[Entities, ...] = ()
    without: tuple[Entities, ...] = ()

    @property
    def marks(self) -> tuple[bool, tuple[Entities, ...], tuple[Entities, ...]]:
        return self.listed, self.only, self.without

    def takes(self, entities: Mapping[str, str]) -> bool:
        fits = not self.only or any(has_all(entities, part) for part in self.only)
        return self.listed and fits and not any(has_all(entities, part) for part in self.without)


def said_by(where: Mention, name: str, cells: Sequence[str], sides: Mapping[str, int]) -> Said:
    """Return the marks of a row in `exclude` and `include`; `UnusableFile` if they disagree."""
    typed = {"exclude": "", "include": ""}
    typed |= {side: cells[sides[side]] for side in typed if side in sides}
    exclude, include = mark_of(typed["exclude"], "exclude"), mark_of(typed["include"], "include")
    said = {exclude, include}
    if "out" in said and said & {"in", "runs"}:
        observed = f"exclude '{typed['exclude']}', include '{typed['include']}'"
        raise UnusableFile(IssueCode.MARKS_CONTRADICT, observed)
    return Said(
        where=where,
        name=name,
        listed="out" not in said,
        only=parse_exclusions(_unquoted(typed["include"])) if include == "runs" else (),
        without=parse_exclusions(_unquoted(typed["exclude"])) if exclude == "runs" else (),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ListOfPeople:
    """A site's participants.tsv: whom it names, by label without ``sub-``."""

    name: str
    said: Mapping[str, Said]
    marks: bool  # whether it has a column exclude or include


def lists_of_people(
    base: Path,
    folder: str,
    taken: Collection[str],
    findings: Findings,
    not_exclusions: Collection[str] = (),
    compared: Collection[str] = (),
) -> tuple[ListOfPeople, ...]:
    """Return the participants.tsv of the site's folder and of those down to its images' `folder`.

    `taken`: names of the lists that are read elsewhere.  Any fault stops the site, except in rows
    of the tables that are `compared`: such a row is data of one person, and leaves no one out.
    """
    places = [base, *(base / part for part in _downwards(folder))]
    tables = []
    for place in places:
        _note_second_lists(place, (*taken, *compared), findings)
        path = place / PARTICIPANTS
        name = path.relative_to(base).as_posix()
        try:
            if path.is_file() or path.is_symlink() or path.exists():
                tables.append(_list_of_people(path, name, not_exclusions, compared, findings))
        except OSError as err:
            findings.add(IssueCode.FILE_UNREADABLE, f"{name}: {err.strerror}")
        except UnusableFile as verdict:
            findings.add_issue(verdict.issue, name)
    return tuple(table for table in tables if table is not None)


def _note_second_lists(folder: Path, taken: Collection[str], findings: Findings) -> None:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return  # noted where the files are sought
    for name in names:
        if name not in (PARTICIPANTS, *taken) and NEAR_LIST.fullmatch(letters_and_digits(name)):
            findings.add(IssueCode.LIST_BESIDE, name)


def _downwards(folder: str) -> list[PurePath]:
    pure = PurePath(folder)
    return [] if leads_out(folder) else [*reversed(pure.parents), pure][1:]


def read_list(
    path: Path, *, comments: bool = True, readable: bool = False
) -> list[tuple[Line, tuple[str, ...]]]:
    """Return the lines of a list with their cells; `UnusableFile`, or OSError.

    `readable`: header and those rows that can be read.
    """
    if path.is_symlink() and not path.exists():
        raise UnusableFile(IssueCode.FILE_POINTER, "a link whose file is not here")
    if path.exists() and not path.is_file():
        raise UnusableFile(IssueCode.NO_REGULAR_FILE, "no file")
    content, delimiter = bounded(path), delimiter_of(path.name)
    if not readable:
        return table_cells(content, delimiter, comments=comments)
    lines = table_lines(content, delimiter, by_line=True, comments=comments)
    width, readable_rows = len(line_cells(lines[0])), []
    for line in lines:
        with suppress(UnusableFile):
            readable_rows.append((line, cells_of_row(line, width)))
    return readable_rows


def _list_of_people(
    path: Path,
    name: str,
    not_exclusions: Collection[str],
    compared: Collection[str],
    findings: Findings,
) -> ListOfPeople | None:
    # No comments: "#sub-01" may mean to leave a person out, or be a note.
    (first, header), *rows = read_list(path, comments=False, readable=name in compared)
    if len(header) == 1 and re.search(r"[\s|]", header[0]):
        raise UnusableFile(IssueCode.TABLE_SEPARATOR, str(first), separator="a tab")
    sides = sides_of(header, not_exclusions)
    marks = bool({"exclude", "include"} & set(sides))
    if "person" not in sides:
        words = {
            cell: letters_and_digits(cell) for cell in header if cell.lower() not in not_exclusions
        }
        near = [c for c, word in words.items() if word and NEAR_PERSON.fullmatch(word)]
        near += difflib.get_close_matches(PERSON, words, n=1, cutoff=MISTYPED)
        if near:
            raise nearly(near[0], PERSON)
        if marks:
            raise UnusableFile(IssueCode.PERSON_COLUMN, f"found {', '.join(header)[:80]}")
        return None  # a table of something else
    said: dict[str, Said] = {}
    for line, cells in rows:
        try:
            person = said_by(Mention(name, line.number), cells[sides["person"]], cells, sides)
            label = bare(person.name)
            if not label:
                raise UnusableFile(IssueCode.PERSON_UNNAMED, "no name")
            before = said.setdefault(label, person)
            if before.marks != person.marks:
                raise UnusableFile(IssueCode.MARKED_TWICE, f"'{label}' stands above, too")
        except UnusableFile as verdict:
            findings.add_issue(verdict.issue, f"{name}: {line}")
    return ListOfPeople(name=name, said=said, marks=marks)


def bare(label: str) -> str:
    """Return a label without ``sub-``."""
    return label.strip().removeprefix("sub-")


def alike(label: str) -> str:
    """Return a label without case, leading zeros, separators and sub-."""
    text = re.sub(r"[^a-z0-9]", "", label.lower())
    text = re.sub(r"^(?:subject|subj|sub|participant)(?=\d|[a-z]+\d)", "", text)
    return re.sub(r"(?<!\d)0+(?=\d)", "", text)


def spellings(label: str) -> set[str]:
    """Return labels that a spelling may mean: 02 by S02, 01 by 01_ses-1, 2 by 2.0."""
    text = re.sub(r"\.0+$", "", bare(label).lower())
    whole = alike(text)
    first = alike(re.split(r"[^a-z0-9-]", text)[0])
    digits = alike(re.sub(r"^[a-z]+(?=\d+$)", "", whole))
    return {whole, first, digits} - {""}


def leave_out(
    runs: Iterable[ListedRun], tables: Sequence[ListOfPeople], findings: Findings
) -> tuple[ListedRun, ...]:
    """Return the runs; those that a list leaves out have its line.

    `runs`: all runs of the site with their people, before the owner's filters.
    """
    runs = tuple(runs)
    for table in tables:
        if table.marks and runs:
            runs = _left_out_by(table, runs, findings)
    return runs


def _left_out_by(
    table: ListOfPeople, runs: Sequence[ListedRun], findings: Findings
) -> tuple[ListedRun, ...]:
    by_person: dict[str, list[ListedRun]] = {}
    for run in runs:
        by_person.setdefault(bare(run.subject), []).append(run)
    whole = {alike(label): label for label in by_person}
    parts = {text: label for label in by_person for text in spellings(label)}
    if not set(table.said) & set(by_person):
        ids, labels = list(table.said), sorted(by_person, key=natural_key)
        first = f"'{next(iter(table.said.values())).name}'" if ids else "nobody"
        observed = f"{len(ids)} names such as {first}, none of {len(labels)} people here"
        findings.add(
            IssueCode.PEOPLE_OTHER,
            f"{table.name}: {observed}",
            example=by_person[labels[0]][0].subject,
        )
    for label, said in table.said.items():
        if label in by_person:
            _check_runs(said, by_person[label], findings)
        elif near := parts.get(alike(label)) or next(
            (whole[text] for text in spellings(label) if text in whole), ""
        ):
            place = f"{said.where}: '{said.name}'; did you mean '{by_person[near][0].subject}'?"
            findings.add(IssueCode.PERSON_MISSPELLED, place)
        elif said.marks != (True, (), ()):
            # Their files may be gone on purpose.
            findings.add(IssueCode.PERSON_ABSENT, f"{said.where}: '{said.name}'")
    return tuple(_marked(run, table.said.get(bare(run.subject))) for run in runs)


def _marked(run: ListedRun, said: Said | None) -> ListedRun:
    if said is None or run.left_out or said.takes(_entities(run)):
        return run
    return replace(run, left_out=said.where)


def _entities(run: ListedRun) -> dict[str, str]:
    listed = {"ses": run.ses.removeprefix("ses-"), "run": run.run.removeprefix("run-")}
    return {key: value for key, value in listed.items() if value} | entities_of(
        PurePath(run.file).name
    )


def _check_runs(said: Said, runs: Sequence[ListedRun], findings: Findings) -> None:
    for part in (*said.only, *said.without):
        if not any(has_all(_entities(run), part) for run in runs):
            words = "_".join(f"{key}-{value}" for key, value in part)
            keys = {key for key, _ in part}
            there = {f"{k}-{v}" for run in runs for k, v in _entities(run).items() if k in keys}
            place = f"{said.where}: '{words}' of '{said.name}'"
            place += f", who has {', '.join(sorted(there)[:6])}" if there else ""
            findings.add(IssueCode.MARKED_RUN_ABSENT, place)


def lines_of_left_out(runs: Iterable[ListedRun], tables: Iterable[str]) -> tuple[str, ...]:
    """Return one text for each table: how many people it leaves out, and by which lines."""
    by_person: dict[str, list[ListedRun]] = {}
    for run in runs:
        by_person.setdefault(run.subject, []).append(run)
    whole = {who for who, of in by_person.items() if all(run.left_out for run in of)}
    texts = []
    for table in tables:
        out = [
            run
            for of in by_person.values()
            for run in of
            if (run.left_out or NOWHERE).table == table
        ]
        people = [run for run in out if run.subject in whole]
        others = [run for run in out if run.subject not in whole]
        n_people = len({run.subject for run in people})
        text = f"{n_people} of {len(by_person)} people are left out by {table}{_lines(people)}"
        if others:
            n_runs = len({(run.subject, run.ses, run.run or run.file) for run in others})
            text += f"; and {n_runs} runs of others{_lines(others)}"
        texts.append(text)
    return tuple(texts)


def _lines(runs: Iterable[ListedRun]) -> str:
    lines = sorted({(run.left_out or NOWHERE).line for run in runs})
    if not lines:
        return ""
    return f", line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"
