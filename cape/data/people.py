"""The people of a site and their runs, as the site states them: the only reader of names and lists.

People are stated by names of BIDS, by a manifest, by a layout that the site typed, or, where no
series are read, by a table of people.  Nothing is guessed: files whose people nobody states are
refused, and so are labels that look alike and several versions of one run.  No data are opened but
tables whose rows are people.
"""

import dataclasses
import functools
import os
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple

from cape.counting import number_of
from cape.data import bids, folders
from cape.data.file_type import CIFTI_SERIES, CIFTI_SUFFIX, suffixes_of, visible
from cape.data.gift import names_beside, read_gift_names
from cape.data.issues import Finding, Findings, IssueCode, UnusableFile
from cape.data.locate import can_be_a_name, located
from cape.data.manifest import MANIFEST_NAMES, read_manifest
from cape.data.marks import (
    MarkTable,
    left_out_by,
    lines_said,
    marks_of_records,
    note_second_lists,
    read_marks,
)
from cape.data.names import bare, labels_alike, likeness, natural_key, normal, one_label_each
from cape.data.person_tables import column_faults, table_of_outcomes, tables_of
from cape.data.runs import OWN_FILE, Mention, Person, SiteRun, leads_out
from cape.data.space import reserved_names
from cape.data.tables import RECORDS, read_labels, read_records
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.option import did_you_mean
from cape.settings.own_words import POLICY_FILE, OwnWords
from cape.settings.question import Question
from cape.settings.resolved import resolve
from cape.settings.words import parse_entities, parse_exclusions

# What to add to bids_filter and to bids_exclude
Choice = tuple[str, str]

SOURCES: Final = ("data", "manifest", "bids")
# Names shown where nobody states the people, and commands printed for one refusal
MAX_NAMES: Final = 3
# The label in the name of a file, and what follows it
_LABEL_AND_END: Final = re.compile(r"(sub-[A-Za-z0-9]+)([^A-Za-z0-9/][^/]*)")
MAX_WAYS: Final = 6
# Endings of files that hold one packed file
PACKED: Final = ("gz", "bz2", "xz", "zst", "zip", "7z")
# The source of a list in Python of which no name says whose it is
_OF_EACH: Final = "list"
# Faults that commands mend
_BY_COMMANDS: Final = (
    IssueCode.RUN_VERSIONS,
    IssueCode.PEOPLE_UNSTATED,
    IssueCode.LAYOUT_FITS_NONE,
)
# Entities listed where no image fits, as examples.
MAX_ENTITIES: Final = 6


class NotTaken(NamedTuple):
    """A file that is no run of anybody, and why."""

    path: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ListRefusal:
    """Why a site's files do not say who its people are, with commands that mend it."""

    code: str
    text: str
    ways: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PeopleList:
    """The people of one site, stated once for all that follows; private to the site."""

    site: str
    folder: Path
    source: str = ""  # what states them: BIDS, the layout, or the name of a table
    people: tuple[Person, ...] = ()  # in natural order, with those that are left out
    not_taken: tuple[NotTaken, ...] = ()
    said: tuple[str, ...] = ()  # who is left out, by which lines
    columns: tuple[str, ...] = ()  # features of a table whose rows are the people
    runs_left_out: tuple[SiteRun, ...] = ()  # of all people
    unstated: tuple[str, ...] = ()  # series of a list that cannot be used
    doubled: tuple[str, ...] = ()  # labels of people of whom a run is there in several versions
    filters: tuple[str, ...] = ()  # values of bids_filter, each of which chooses one version
    ways: tuple[str, ...] = ()  # commands that state what is not stated

    @property
    def listed(self) -> tuple[Person, ...]:
        """Those who take part."""
        return tuple(person for person in self.people if not person.left_out)

    @property
    def stated(self) -> frozenset[str]:
        """Labels of those who take part, unless they are numbers of a list in Python."""
        people = () if self.source == _OF_EACH else self.listed
        return frozenset(person.label for person in people)

    def refusal(self, findings: Sequence[Finding]) -> ListRefusal | None:
        """Return all that keeps the list from being used; None if it can."""
        stops = [finding for finding in findings if finding.severity == "E"]
        if not stops:
            return None
        text = "\n".join(finding.private for finding in stops)
        return ListRefusal(code=stops[0].code, text=text, ways=self.ways)


@dataclasses.dataclass(kw_only=True, slots=True)
class _Draft:
    """What a site states, before marks, filters and the disk are looked at."""

    source: str
    runs: list[SiteRun] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)  # label in normal form -> as printed
    named: dict[str, bids.BidsName] = field(default_factory=dict)  # by file
    not_taken: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, Mention] = field(default_factory=dict)  # by file; rows of a manifest
    marks: list[MarkTable] = field(default_factory=list)
    columns: tuple[str, ...] = ()
    has_exclude: bool = False  # whether the list that states the runs has the column
    every_name: bool = False  # whether a filter that the owner wrote is about all names

    def add(self, base: Path, name: str, label: str, shown: str, **how: Any) -> None:
        """Add a run of a person, who is printed as first shown; `how`: fields of `SiteRun`."""
        self.shown.setdefault(label, shown)
        self.runs.append(SiteRun(path=base / name, name=name, person=label, **how))


def read_people(
    base: Path,
    config: Config,
    findings: Findings,
    *,
    listing: Mapping[str, object] | None = None,
    words: OwnWords | None = None,
    before_tables: Callable[[], None] | None = None,
    only: Sequence[str] | None = None,
) -> PeopleList:
    """Return the people of a site's folder; only files below `base` are opened.

    `listing` names files as an engine maps them: one of ``data``, ``manifest``, ``bids``; by
    default the folder's manifest counts, else the files below it.  `words`: what the site says; by
    default its own file.  `before_tables` is called before a table is opened whose rows are data.
    `only`: of the files below `base` those that somebody here named in Python; where nothing states
    the person of any, each file is one person.
    Faults go to `findings`; with one that stops the site the list is not to be used.
    """
    given = {name: value for name, value in (listing or {}).items() if value not in (None, "")}
    unread = PeopleList(site=findings.site, folder=base)
    if not _is_one_source(given, findings):
        return unread
    with folders.readable(base, findings):
        words = folders.words_beside(base) if words is None else words
        reader = _Reader(base, config, findings, words, before_tables, only)
        draft = reader.draft(given)
        if draft is None:
            return replace(unread, ways=reader.ways_out, unstated=tuple(reader.unstated))
        return reader.conclude(draft)


def _is_one_source(given: Mapping[str, object], findings: Findings) -> bool:
    for name in given:
        if name not in SOURCES:
            place, public = f"'{name}'{did_you_mean(name, SOURCES)}", {"sites": findings.site}
            findings.add(
                IssueCode.OWNERS_SETTING, place, public=public, sources=" or ".join(SOURCES)
            )
    sources = [name for name in SOURCES if name in given]
    if len(sources) > 1:
        place = ", ".join(sources)
        findings.add(IssueCode.SEVERAL_SOURCES, place, sources=", ".join(SOURCES))
    return len(sources) < 2


class _Reader:
    """One reading of one folder."""

    def __init__(
        self,
        base: Path,
        config: Config,
        findings: Findings,
        words: OwnWords,
        before_tables: Callable[[], None] | None,
        only: Sequence[str] | None,
    ) -> None:
        self.base, self.config, self.findings, self.words = base, config, findings, words
        self.before_tables, self.only = before_tables, only
        self.ways: list[str] = []
        self.filters: list[str] = []
        self.doubled: set[str] = set()
        self.unstated: list[str] = []

    @property
    def ways_out(self) -> tuple[str, ...]:
        """The commands that mend the list; none where a cell or a name is to be mended first."""
        return () if self.findings.blocked_beside(_BY_COMMANDS) else tuple(self.ways)

    def _before_tables(self) -> None:
        if self.before_tables is not None:
            self.before_tables()

    # -- what states the people ----------------------------------------------------------------

    def draft(self, given: Mapping[str, object]) -> _Draft | None:
        """Return what the site states; None after noting that nothing does."""
        question = self.config.question
        if question:
            # headers alone: a column that is not there must not cost hours of reading
            faults = column_faults(self.base, self.words, question)
            for verdict in faults:
                self.findings.add_issue(verdict.issue)
            # In a check the other columns of tables, which are read in no time, are told as well.
            of_cells = question.of_tables and self.before_tables is None
            if any(not of_cells or one.issue.code is not IssueCode.GROUP_COLUMN for one in faults):
                return None
        if question and question.of_tables:
            return self._of_outcomes(question)  # other files of the engine lie beside them
        if self.config.feature_space == "matrix" and not given and self.only is None:
            if tables := [name for name in RECORDS if (self.base / name).is_file()]:
                return self._of_tables(tables)
        table, folder = str(given.get("manifest", "")), str(given.get("bids", "."))
        if not given:
            there = (name for name in MANIFEST_NAMES if os.path.lexists(self.base / name))
            table = next(there, "")
        places = (table, folder, given.get("data", ""))
        if not all(can_be_a_name(text, self.findings) for text in places if isinstance(text, str)):
            return None
        if leads_out(folder):
            self.findings.add(IssueCode.OUTSIDE_FOLDER, folder)
            return None
        if "data" in given:
            names = self._names_given(given["data"])
            if names and all(PurePath(name).name in RECORDS for name in names):
                return self._of_tables(names)
        elif self.only is not None:
            names = list(self.only)
        else:
            below = folders.names_below(self.base / folder, reserved_names(self.config))
            names = [f"{folder}/{name}" if folder != "." else name for name in below]
        # Whatever a list names is meant as a series; a pattern may fit tables beside them.
        of_caller = self.only is not None
        is_list = of_caller or ("data" in given and not isinstance(given["data"], str))
        series = names if is_list else self._of_the_kind(names)
        by_names = self._of_bids(series, is_alone=not (table or self.words.layout))
        if not is_list:
            self._note_surfaces(names, by_names)
            self._note_packed(names, by_names)
        stated = None
        if table:
            stated = self._of_manifest(table)
            if self.only is not None:
                named = set(self.only)
                stated.runs = [run for run in stated.runs if os.path.normpath(run.name) in named]
        if self.words.layout:
            if stated is not None:
                self.findings.add(IssueCode.TWO_SOURCES, f"layout in {POLICY_FILE} and {table}")
            stated = self._of_layout(series)
        if stated is None:
            stated = by_names
            stated.every_name = of_caller or not is_list
            if of_caller and not (by_names.runs or self.findings.blocked):
                stated = self._of_each(names) or stated
        elif by_names.runs and stated.runs:
            self._check_agree(stated, by_names)
        taken = {os.path.normpath(run.name) for run in stated.runs}
        unstated = [n for n in series if of_caller and n not in taken]
        unstated += [n for n in series if "data" in given and n in stated.not_taken]
        if (unstated or not stated.runs) and not self.findings.blocked:
            self._note_unstated(names, unstated or series, stated, given)
            return None
        if stated.source != _OF_EACH:
            names = [run.name for run in stated.runs]
            stated.marks += self._participants(stated.source, names)
        return stated

    def _of_each(self, names: Sequence[str]) -> _Draft | None:
        """Return each file as one person; None where names or a mark say that it may be none."""
        if any("sub-" in name for name in names):
            return self._of_own_folders(names)
        draft = _Draft(source=_OF_EACH)
        tables = self._participants(draft.source, names)
        # Whom a table leaves out cannot be told from people without names.
        marks = (row for table in tables for row in table.rows if row.everything or row.runs)
        marked = next(
            (f"{row.where} leaves somebody out, and names say nobody" for row in marks), ""
        )
        if why := marked or _two_runs_of_one(names):
            draft.not_taken = dict.fromkeys(names, why)
            return draft
        for m, name in enumerate(names, start=1):
            draft.add(self.base, name, f"{m:03d}", f"sub-{m:03d}")
        return draft

    def _of_own_folders(self, names: Sequence[str]) -> _Draft | None:
        """Return each file as the person whose folder ``sub-<label>`` it lies in; None if unclear.

        A folder with two of them may hold two runs, or a run and its table.
        """
        draft = _Draft(source="layout")  # as sub-{subject}/ would be
        for name in names:
            *above, file = PurePath(name).parts
            own = [part for part in above if part.startswith("sub-")]
            label = bare(own[0]) if len(own) == 1 and "sub-" not in file else ""
            if not label.isalnum():
                return None
            draft.add(self.base, name, label, own[0])
        return draft if len(draft.shown) == len(names) else None

    def _names_given(self, given: object) -> list[str]:
        """Return the names of a list or of a pattern that an engine maps."""
        if not isinstance(given, str):
            names = [str(name) for name in given] if isinstance(given, Sequence) else []
            if not names:
                self._note_none("an empty list")
            # A member of COINSTAC may have to map the policy and the owner's files as data, too.
            others = {*folders.NO_DATA, *reserved_names(self.config)}
            return [name for name in names if PurePath(name).name not in others]
        if not re.search(r"[*?\[]", given):
            return [given]
        if leads_out(given):
            self.findings.add(IssueCode.OUTSIDE_FOLDER, given)
            return []
        matches: list[str] = []
        with suppress(ValueError):  # an invalid pattern, such as **x
            paths = self.base.glob(given)
            matches = [p.relative_to(self.base).as_posix() for p in paths if visible(p)]
        if not matches:
            self._note_none(f"the pattern {given}")
        return sorted(matches)

    def _note_surfaces(self, names: Sequence[str], by_names: _Draft) -> None:
        """Name surfaces beside volumes, and refuse those that are somebody's only series."""
        for name in names if not self.config.of_cifti else ():
            with suppress(UnusableFile):
                named = bids.read_name(name) if name.lower().endswith(CIFTI_SERIES) else None
                if named and normal(named.label) in by_names.shown:
                    by_names.not_taken[name] = "it is a surface, and the feature space is none"
                elif named:
                    observed = "named as a surface or CIFTI file"
                    self.findings.add(IssueCode.SURFACE_DATA, f"{name}: {observed}")

    def _note_packed(self, names: Sequence[str], by_names: _Draft) -> None:
        """Name series that are packed as no reader expects, and those whose only ones they are."""
        for name in names:
            inside, found, end = name.rpartition(".")
            if not found or end.lower() not in PACKED or self._of_the_kind([name]):
                continue
            with suppress(UnusableFile):
                named = bids.read_name(inside) if self._of_the_kind([inside]) else None
                if named is None or bids.why_no_series(named):
                    continue
                by_names.not_taken[name] = "it is packed: unpack it"
                if normal(named.label) not in by_names.shown:
                    accepted = " or ".join(suffixes_of(self.config.feature_space))
                    self.findings.add(
                        IssueCode.FILE_TYPE_UNUSABLE,
                        f"{name}: ends in .{end}",
                        stops=False,
                        accepted=accepted,
                    )

    def _of_the_kind(self, names: Sequence[str]) -> list[str]:
        space = self.config.feature_space
        if space in CIFTI_SUFFIX:
            return [name for name in names if name.lower().endswith(CIFTI_SUFFIX[space])]
        kind: folders.FileKind = "matrix" if space == "matrix" else "volume"
        names = [name for name in names if name not in self.words.tables]
        some = [name for name in names if folders.of_kind(name, kind)]
        if space == "atlas" and not self._state_somebody(some):  # series of its parcels
            tables = [name for name in names if folders.of_kind(name, "matrix")]
            return tables if tables else some
        return some

    def _state_somebody(self, names: Sequence[str]) -> bool:
        if self.words.layout:
            return any(bids.roles_in(self.words.layout, name) for name in names)
        for name in names:
            with suppress(UnusableFile):
                if (named := bids.read_name(name)) and not bids.why_no_series(named):
                    return True
        return False

    def _of_bids(self, names: Sequence[str], *, is_alone: bool) -> _Draft:
        """Return what names of BIDS state; contradictions count where nothing else states it."""
        draft = _Draft(source="BIDS")
        for name in names:
            try:
                named = bids.read_name(name)
                label = normal(named.label) if named else ""
            except UnusableFile as verdict:
                if is_alone:
                    self.findings.add_issue(verdict.issue, name)
                continue
            # Whoever named a file means it, whatever its last word is.
            judged = named and (named if self.only is None else replace(named, suffix=""))
            if named is None or judged is None:
                draft.not_taken[name] = "its name is none of BIDS"
            elif why := bids.why_no_series(judged):
                draft.not_taken[name] = why
            else:
                draft.named[name], session = named, named.entities.get("ses", "")
                run = folders.run_words(named.entities)
                draft.add(self.base, name, label, f"sub-{label}", session=session, run=run)
        return draft

    def _of_layout(self, names: Sequence[str]) -> _Draft:
        draft = _Draft(source="layout")
        for name in names:
            try:
                roles = bids.roles_in(self.words.layout, name)
                if roles is None:
                    draft.not_taken[name] = "the layout does not fit it"
                    continue
                label = normal(roles["subject"])
            except UnusableFile as verdict:
                self.findings.add_issue(verdict.issue, name)
                continue
            session, run = roles.get("session") or "", roles.get("run") or ""
            draft.add(self.base, name, label, label, session=session, run=run)
        if not draft.runs:
            observed = f"{self.words.layout}; the files are such as {', '.join(names[:MAX_NAMES])}"
            self.findings.add(IssueCode.LAYOUT_FITS_NONE, observed)
            self.ways += self._two_ways(names)
            self.unstated += names
        return draft

    def _of_manifest(self, table: str) -> _Draft:
        draft = _Draft(source=table)
        rows = read_manifest(self.base, table, self.findings, self.words)
        for row in rows:
            draft.runs.append(row.run)
            # As the list writes it, with sub- or without.
            label, file = row.run.person, row.run.name
            draft.shown.setdefault(label, "sub-" * row.written.startswith("sub-") + label)
            draft.has_exclude |= row.left_out is not None
            if row.left_out:
                draft.left_out[file] = row.where
            with suppress(UnusableFile):
                if resolve(self.config).own_entities and (named := bids.read_name(file)):
                    draft.named[file] = named
        return draft

    def _of_outcomes(self, question: Question) -> _Draft | None:
        """Return the people of the site's table of outcomes; None after noting that it has none."""
        name = ""
        try:
            name = table_of_outcomes(self.base, self.words, question)
            path = self.base / name
            self._before_tables()
            labels = read_gift_names(path) if question.of_gift else read_labels(path)
            own = [normal(label) for label in labels]
            stands_for = one_label_each(set(own), self.words)
        except UnusableFile as verdict:
            self.findings.add_issue(verdict.issue, name)
            return None
        except OSError as err:
            self.findings.add(IssueCode.FILE_UNREADABLE, f"{name}: {err.strerror}")
            return None
        draft = _Draft(source=name)
        for i, (label, written) in enumerate(zip(own, labels, strict=True)):
            if label not in draft.shown:  # a row a session: the first one stands for the person
                draft.add(self.base, name, label, written.strip(), row=i)
        if question.change is None:
            self._note_twice(Counter(stands_for[label] for label in own), draft)
        draft.marks += self._participants(name, [])
        names = names_beside(name)
        if question.of_gift and (self.base / names).is_file():
            marks = read_marks(self.base / names, names, self.findings, self.words.other_columns)
            draft.marks += [marks] if marks else []
        return draft

    def _note_twice(self, labels: Counter[str], draft: _Draft) -> None:
        if twice := [label for label, n in labels.items() if n > 1]:
            shown = ", ".join(draft.shown.get(label, label) for label in twice[:9])
            self.findings.add(IssueCode.SUBJECT_TWICE, shown)

    def _of_tables(self, names: Sequence[str]) -> _Draft:
        """Return the people whom the rows of tables are."""
        draft = _Draft(source=names[0])
        headers: dict[tuple[str, ...], str] = {}
        if self.config.declared_columns:
            headers[self.config.declared_columns] = "the owner's setting columns"
        labels: Counter[str] = Counter()
        for name in names:
            path = self.base / name
            if leads_out(name):
                self.findings.add(IssueCode.OUTSIDE_FOLDER, name)
                continue
            if not path.is_file():
                self.findings.add(IssueCode.FILE_MISSING, name, base=self.base)
                continue
            self._before_tables()
            try:
                table = read_records(path)
                own = [normal(label) for label in table.labels]
                stands_for = one_label_each(set(own), self.words)
                if name in RECORDS:
                    draft.marks.append(marks_of_records(path, name, self.words.other_columns))
            except UnusableFile as verdict:
                self.findings.add_issue(verdict.issue, name)
                continue
            except OSError as err:
                self.findings.add(IssueCode.FILE_UNREADABLE, f"{name}: {err.strerror}")
                continue
            headers.setdefault(table.names, name)
            draft.columns = draft.columns or table.names
            labels.update(stands_for[label] for label in own)
            for i, (label, written) in enumerate(zip(own, table.labels, strict=True)):
                draft.add(self.base, name, label, written.strip(), row=i)
        if len(headers) > 1:
            public = {"sites": f"within site {self.findings.site}"}
            self.findings.add(IssueCode.RECORDS_DIFFER, ", ".join(headers.values()), public=public)
        self._note_twice(labels, draft)
        draft.marks += self._participants(draft.source, [])
        return draft

    def _participants(self, source: str, names: Sequence[str]) -> list[MarkTable]:
        """Return the tables of people from the site's folder down to the folders of its people."""
        places = {PurePath(".")}
        for name in names:
            parts = name.split("/")[:-1]
            # Of BIDS, those above the folder of the person; a typed layout may name any.
            of_people = (n for n, part in enumerate(parts) if part.startswith("sub-"))
            at = next(of_people, len(parts))
            places |= {PurePath(*parts[:n]) for n in range(at + 1)}
        columns, tables = self.words.other_columns, []
        read = (source, folders.PARTICIPANTS, *self.words.tables)
        for place in sorted(places):
            folder = self.base / place
            if folder.is_dir():
                note_second_lists(folder, read, self.findings, columns)
            if folder != self.base and folders.read_words(folder / POLICY_FILE) != OwnWords():
                name = (place / POLICY_FILE).as_posix()
                self.findings.add(IssueCode.LIST_BESIDE, name, name=name)
        wanted = [(place / folders.PARTICIPANTS).as_posix() for place in sorted(places)]
        there = [name for name in wanted if os.path.lexists(self.base / name)]
        try:
            there += tables_of(self.base, self.words)
        except UnusableFile as verdict:
            self.findings.add_issue(verdict.issue)
        for name in dict.fromkeys(there):
            not_marks = columns if name in (*wanted, *self.words.tables) else None
            tables.append(read_marks(self.base / name, name, self.findings, not_marks))
        return [table for table in tables if table is not None]

    def _check_agree(self, stated: _Draft, by_names: _Draft) -> None:
        """Note where names of BIDS say otherwise than the list or the layout that counts."""
        labels = {run.person for run in (*stated.runs, *by_names.runs)}
        # A spreadsheet may have taken zeros off: 1 is the 01 of the names.
        who = {label: likeness(one) for label, one in one_label_each(labels, self.words).items()}
        listed = {self._where(run.name): who[run.person] for run in stated.runs}
        runs = {
            (who[normal(named.label)], bids.run_key(named.run))
            for name, named in by_names.named.items()
            if name in listed
        }
        for name, named in by_names.named.items():
            label = normal(named.label)
            if name not in listed and (who[label], bids.run_key(named.run)) in runs:
                stated.not_taken[name] = f"it is not in {stated.source}"
            elif name not in listed:
                place = f"{name} has a name of BIDS and is not in {stated.source}"
                self.findings.add(IssueCode.TWO_SOURCES, place)
            elif listed[name] != who[label]:
                place = f"{name} is another person's by {stated.source} than {label} of its name"
                self.findings.add(IssueCode.TWO_SOURCES, place)

    def _where(self, name: str) -> str:
        """Return the path at which a listed file lies: engines link mapped files flat."""
        with suppress(OSError):  # a name that no file can have is noted elsewhere
            if not leads_out(name) and not (self.base / name).exists():
                return PurePath(name).name
        return name

    # -- nobody states them --------------------------------------------------------------------

    def _note_none(self, sought: str, others: str = "") -> None:
        there = len(list(self.base.rglob("*.nii*"))) if self.base.is_dir() else 0
        place = f"{sought} in {self.base} ({there} *.nii* below it){others}"
        self.findings.add(IssueCode.NO_FILES, place)

    def _note_unstated(
        self,
        names: Sequence[str],
        series: Sequence[str],
        stated: _Draft,
        given: Mapping[str, object],
    ) -> None:
        ends = [e for e in folders.TO_CONVERT if any(name.lower().endswith(e) for name in names)]
        if ends and not series:
            example = next(name for name in names if name.lower().endswith(ends[0]))
            self.findings.add(IssueCode.CONVERT_FIRST, example, command=folders.TO_CONVERT[ends[0]])
        elif series:
            shown = ", ".join(series[:MAX_NAMES])
            whys = Counter(stated.not_taken[name] for name in series if name in stated.not_taken)
            why = f" ({whys.most_common(1)[0][0]})" if whys else ""
            self.findings.add(
                IssueCode.PEOPLE_UNSTATED, f"{number_of(len(series), 'file')} such as {shown}{why}"
            )
            self.ways += self._two_ways(series)
            self.unstated += series
        elif "data" not in given:
            suffixes = ", ".join(suffixes_of(self.config.feature_space))
            other, kind = folders.space_for(names), folders.kind_of(names)
            there = [name for name in names if folders.of_kind(name, kind)]
            hint = f"; {there[0]} is read with feature_space = {other}" if there else ""
            self._note_none(f"files ending in {suffixes}", hint)

    def _two_ways(self, series: Sequence[str], label: str = "") -> list[str]:
        folder = shlex.quote(str(self.base))
        manifest = shlex.quote(str(self.base / MANIFEST_NAMES[0]))
        first = series[0] if series else "PATTERN"
        first = first.replace(f"sub-{label}", "sub-{subject}") if label else first
        # One file a person, all with one ending; other names may be those of sessions.
        found = [match for name in series if (match := _LABEL_AND_END.fullmatch(name))]
        labels, ends = ({match[group] for match in found} for group in (1, 2))
        if not label and len(ends) == 1 and len(labels) == len(series):
            first = "{subject}" + ends.pop()
        first = shlex.quote(first)
        return [
            f"cape people {folder} --layout {first}",
            f"cape people {folder} --write {manifest}",
        ]

    # -- who takes part ------------------------------------------------------------------------

    def conclude(self, draft: _Draft) -> PeopleList:
        """Return the list: one label a person, without those left out, one file a run."""
        self._one_label_each(draft)
        runs = draft.runs  # with the label that stands for the person
        entities = {run.name: self._entities(run, draft) for run in runs}
        out = left_out_by(runs, draft.marks, entities, self.findings)
        out |= {(name, OWN_FILE): mention for name, mention in draft.left_out.items()}
        # By run: several versions of one are left out together.
        by_run: dict[str, dict[object, Mention | None]] = defaultdict(dict)
        for run in runs:
            versions = draft.named[run.name].run if draft.source == "BIDS" else None
            key = (run.name, run.row) if versions is None else bids.run_key(versions)
            by_run[run.person].setdefault(key, out.get((run.name, run.row)))
        lines = {person: list(mentions.values()) for person, mentions in by_run.items()}
        tables = [table.name for table in draft.marks if table.has_column]
        tables += [draft.source] * draft.has_exclude
        said = tuple(lines_said(lines, tables, all_read=not self.findings.blocked))
        self.findings.left_out = said
        for (name, row), mention in out.items():
            if row == OWN_FILE:
                draft.not_taken[name] = f"left out by {mention}"
        taking = [run for run in runs if (run.name, run.row) not in out]
        kept = self._one_version_each(self._filtered(taking, draft), draft)
        excluded = [name for name, row in out if row == OWN_FILE]
        there = located(
            self.base,
            kept,
            self.findings,
            of_cifti=self.config.of_cifti,
            excluded=excluded,
            anywhere=self.only is not None,
        )
        return PeopleList(
            site=self.findings.site,
            folder=self.base,
            source=draft.source,
            people=self._people(draft, there, lines),
            not_taken=tuple(NotTaken(*pair) for pair in sorted(draft.not_taken.items())),
            said=said,
            columns=draft.columns,
            doubled=tuple(sorted(self.doubled)),
            filters=tuple(self.filters),
            ways=self.ways_out,
            runs_left_out=tuple(run for run in runs if (run.name, run.row) in out),
            unstated=tuple(self.unstated or (run.name for run in runs)),
        )

    def _one_label_each(self, draft: _Draft) -> None:
        """Give runs and marks the label that stands for the person; note labels that look alike."""
        labels = {run.person for run in draft.runs}
        labels |= {label for table in draft.marks for label in table.labels}
        try:
            stands_for = one_label_each(labels, self.words)
            pairs = list(labels_alike(set(stands_for.values()), self.words))
        except UnusableFile as verdict:
            self.findings.add_issue(verdict.issue, POLICY_FILE)
            return
        for first, second in pairs:
            both = f'[["{first}", "{second}"]]'
            self.findings.add(IssueCode.LABELS_ALIKE, f"{first} and {second}", both=both)
        draft.runs = [replace(run, person=stands_for[run.person]) for run in draft.runs]
        draft.shown = {stands_for[label]: text for label, text in reversed(draft.shown.items())} | {
            label: text for label, text in draft.shown.items() if stands_for[label] == label
        }
        draft.marks = [
            replace(
                table, rows=tuple(replace(row, label=stands_for[row.label]) for row in table.rows)
            )
            for table in draft.marks
        ]

    @staticmethod
    def _entities(run: SiteRun, draft: _Draft) -> dict[str, str]:
        """Return the words by which a list may name a run."""
        words = {"ses": run.session, "run": run.run.removeprefix("run-")}
        own = {k: "".join(filter(str.isalnum, text)) for k, text in words.items() if text}
        return own | dict(draft.named[run.name].entities if run.name in draft.named else {})

    def _filtered(self, stated: Sequence[SiteRun], draft: _Draft) -> list[SiteRun]:
        """Return the runs whose names fit the owner's filter, and note people without one."""
        how = resolve(self.config)
        wanted, unwanted = parse_entities(how.entities), parse_exclusions(self.config.bids_exclude)
        kept: list[SiteRun] = []
        judged = False
        for run in stated:
            named, every = draft.named.get(run.name), draft.every_name
            if named is None or not self._is_judged(run.name, named, every_name=every):
                kept.append(run)
                continue
            judged = True
            if not bids.has_all(named.entities, wanted):
                draft.not_taken[run.name] = f"bids_filter asks for {how.entities}"
            elif any(bids.has_all(named.entities, part) for part in unwanted):
                draft.not_taken[run.name] = f"bids_exclude leaves out {self.config.bids_exclude}"
            else:
                kept.append(run)
        asked = how.entities if judged else ""
        if stated and not kept:
            place = f"{number_of(len(stated), 'image')}{self._entities_there(draft)}"
            self.findings.add(IssueCode.NO_BIDS_MATCH, place, wanted=asked)
            return kept
        without = {run.person for run in stated} - {run.person for run in kept}
        for label in sorted(without, key=natural_key):
            shown = draft.shown[label]
            self.findings.add(IssueCode.NO_BIDS_IMAGE, shown, person=label, wanted=asked)
        return kept

    def _is_judged(self, name: str, named: bids.BidsName, *, every_name: bool) -> bool:
        """Tell whether the owner's filter is about a name.

        The default is about names with a task below folders of people, not about arrays or what
        somebody listed; one that the owner wrote is about all names of BIDS, and in a list about
        those with a task or one of its entities.
        """
        how = resolve(self.config)
        if how.own_entities:
            keys = {key for key, _ in parse_entities(how.entities)}
            return every_name or bool({"task", *keys} & set(named.entities))
        below = any(part.startswith("sub-") for part in name.split("/")[:-1])
        asked = self.config.feature_space != "matrix" and self.only is None
        return asked and below and "task" in named.entities

    @staticmethod
    def _entities_there(draft: _Draft) -> str:
        pairs = (pair for named in draft.named.values() for pair in named.entities.items())
        there = sorted({f"{k}-{v}" for k, v in pairs if k in ("task", "space", "res", "desc")})
        return f" with {', '.join(there[:MAX_ENTITIES])}" if there else ""

    # -- one file a run ------------------------------------------------------------------------

    def _one_version_each(self, stated: Sequence[SiteRun], draft: _Draft) -> list[SiteRun]:
        """Return the runs without those of people of whom one is there in several versions.

        Nothing chooses among versions.  They are a fault of the site where it is checked; in a run
        the people count as zeros, as an owner could otherwise ask by filters who has which files.
        """
        by_names = draft.source == "BIDS"
        groups: dict[object, list[str]] = defaultdict(list)
        person = {run.name: run.person for run in stated}
        for run in stated:
            key = bids.by_value(run.session), bids.by_value(run.run)
            if by_names:
                groups[run.person, bids.run_key(draft.named[run.name].run)].append(run.name)
            # Rows of a list that name no run are one run each.
            elif draft.source == "layout" or any(key):
                groups[run.person, key].append(run.name)
        reach = self._reach(stated, draft)
        for names in map(list, map(dict.fromkeys, groups.values())):  # a name twice is one file
            if len(names) > 1 and by_names:
                self._note_versions(names, draft, reach)
                self.doubled.add(person[names[0]])
            elif len(names) > 1:
                place = f"{draft.source}: {names[0]} and {names[1]}"
                self.findings.add(IssueCode.RUN_STATED_TWICE, place)
        for first, whole, entity in self._wholes(stated, draft) if by_names else ():
            place = f"{whole} lacks {entity}- beside {first}: it may repeat the others"
            told = f'bids_filter = "{entity}-..."'
            self.findings.add(IssueCode.RUN_VERSIONS, place, filter=told)
            values = {named.entities.get(entity, "") for named in draft.named.values()}
            joined = "+".join(sorted(filter(str.isalnum, values), key=natural_key))
            self._offer([(f"{entity}-{joined}", "")])
            self._offer_two_ways([first], draft.named[first].label)
            self.doubled.add(person[whole])
        if self.findings.strict:  # who is asked which version is meant reads them all
            return list(stated)
        return [run for run in stated if run.person not in self.doubled]

    def _wholes(self, stated: Sequence[SiteRun], draft: _Draft) -> Iterator[tuple[str, str, str]]:
        of_person: dict[str, list[str]] = defaultdict(list)
        for run in stated:
            if run.name in draft.named:
                of_person[run.person].append(run.name)
        for names in of_person.values():
            for name in names:
                others = [other for other in names if other != name]
                parts = [draft.named[other].run for other in others]
                if key := bids.part_that_others_have(draft.named[name].run, parts):
                    yield next(o for o in others if key in draft.named[o].run), name, key

    def _reach(self, stated: Sequence[SiteRun], draft: _Draft) -> Callable[[Choice], int]:
        """Return how many people have a run if a choice is added to the owner's."""

        @functools.cache
        def people(choice: Choice) -> int:
            wanted, unwanted = parse_entities(choice[0]), parse_exclusions(choice[1])
            entities = ((run.person, draft.named[run.name].entities) for run in stated)
            return len({who for who, own in entities if _fits(own, wanted, unwanted)})

        return people

    def _note_versions(
        self, names: Sequence[str], draft: _Draft, reach: Callable[[Choice], int]
    ) -> None:
        versions = [draft.named[name] for name in names]
        entity = bids.differing_entity(versions)
        choosing = self._choosing(versions, draft) if entity else ()
        choices = sorted(choosing, key=lambda one: -reach(one))
        # One that leaves people without a run is no answer where another leaves everybody one.
        everybody = [one for one in choices if reach(one) == reach(("", ""))]
        place = f"{names[0]} and {names[1]} differ in {entity}-"
        if not entity:
            place = f"{names[0]} and {names[1]}: keep one, or name the folder of one version"
            tops = dict.fromkeys(self._above(name) for name in names)
            places = [shlex.quote(str(self.base / top)) for top in tops if top]
            ways = [f"cape people {folder}" for folder in places if len(tops) > 1]
            new = [way for way in ways if way not in self.ways]
            self.ways += new[: MAX_WAYS - len(self.ways)]
        self.findings.add(
            IssueCode.RUN_VERSIONS,
            place,
            filter=" or ".join(map(_as_settings, everybody or choices)) or "one of them",
        )
        self._offer(everybody or choices)
        self._offer_two_ways(names, versions[0].label)

    def _offer_two_ways(self, names: Sequence[str], label: str) -> None:
        two = self._two_ways(names, label)
        if two[1] not in self.ways:  # one example is enough
            self.ways += two

    @staticmethod
    def _above(name: str) -> str:
        parts = name.split("/")
        at = next((n for n, part in enumerate(parts) if part.startswith("sub-")), 0)
        return "/".join(parts[:at])

    @staticmethod
    def _choosing(versions: Sequence[bids.BidsName], draft: _Draft) -> Iterator[Choice]:
        """Yield choices that each leave one of the versions."""
        values: dict[str, set[str]] = defaultdict(set)
        for key, value in (pair for one in draft.named.values() for pair in one.entities.items()):
            values[key].add(value)
        every = dict.fromkeys(key for version in versions for key in version.entities)
        keys = [key for key in every if len({v.entities.get(key) for v in versions}) > 1]
        for version in versions:
            own = [(key, version.entities[key]) for key in keys if key in version.entities]
            text = "_".join(f"{key}-{value}" for key, value in own)
            lacks = (key for key in keys if key not in version.entities)
            others = [f"{key}-{'+'.join(sorted(values[key], key=natural_key))}" for key in lacks]
            for choice in (text, ""), (text, ",".join(others)):
                with suppress(ConfigError):
                    wanted, unwanted = parse_entities(choice[0]), parse_exclusions(choice[1])
                    if sum(_fits(other.entities, wanted, unwanted) for other in versions) == 1:
                        yield choice
                        break

    def _offer(self, choices: Iterable[Choice]) -> None:
        """Offer choices that also ask for what the owner's settings ask for."""
        how = resolve(self.config)
        before = how.entities if how.own_entities else ""
        for chosen, left_out in choices:
            text = "_".join(filter(None, (before, chosen)))
            exclude = ",".join(filter(None, (self.config.bids_exclude, left_out)))
            options = {"--filter": text, "--exclude": exclude}
            words = [word for name, value in options.items() if value for word in (name, value)]
            way = shlex.join(["cape", "people", str(self.base), *words])
            if way not in self.ways and len(self.ways) < MAX_WAYS:
                self.filters += [text] if chosen else []
                self.ways.append(way)

    # -- the list ------------------------------------------------------------------------------

    @staticmethod
    def _people(
        draft: _Draft, there: Sequence[SiteRun], lines: Mapping[str, Sequence[Mention | None]]
    ) -> tuple[Person, ...]:
        """Return people in natural order, with their runs in order of session and run.

        Not in the order of the folder: the joined series and the fingerprint of the data must be
        the same on every computer.
        """
        runs: dict[str, list[SiteRun]] = {run.person: [] for run in draft.runs}
        for run in there:
            runs[run.person].append(run)
        for run in draft.runs:  # of those who are left out, for who asks whom that is
            if all(lines[run.person]):
                runs[run.person].append(run)
        people = []
        # Rows of a table stay in its order, which is that of its numbers.
        of_rows = any(run.row >= 0 for run in draft.runs)
        by_name = sorted(runs, key=lambda label: natural_key(draft.shown[label]))
        for label in runs if of_rows else by_name:
            ordered = sorted(
                runs[label],
                key=lambda run: tuple(map(natural_key, (run.session, run.run, run.name))),
            )
            left_out = lines[label] and all(lines[label])
            mentions = dict.fromkeys(str(mention) for mention in lines[label] if mention)
            people.append(
                Person(
                    label=draft.shown[label],
                    runs=tuple(ordered),
                    left_out="; ".join(mentions) if left_out else "",
                )
            )
        return tuple(people)


def _fits(
    entities: Mapping[str, str], wanted: bids.Entities, unwanted: Iterable[bids.Entities]
) -> bool:
    """Tell whether a name has what `bids_filter` asks for and nothing of `bids_exclude`."""
    return bids.has_all(entities, wanted) and not any(bids.has_all(entities, p) for p in unwanted)


def _as_settings(choice: Choice) -> str:
    names = ("bids_filter", "bids_exclude")
    return ", ".join(f'{name} = "{text}"' for name, text in zip(names, choice, strict=True) if text)


def _two_runs_of_one(names: Sequence[str]) -> str:
    """Return which two files of a folder would be one person's if ``sub-`` stood before them."""
    first: dict[tuple[str, str], str] = {}
    for name in names:
        above, _, own = name.rpartition("/")
        with suppress(UnusableFile):
            named = bids.read_name(f"sub-{own}")
            if named and named.run and not bids.why_no_series(named):
                other = first.setdefault((above, likeness(named.label)), name)
                if other != name:
                    return f"{other} and {name} look like two runs of one person"
    return ""


def people_of_tables(base: Path, words: OwnWords, findings: Findings) -> PeopleList:
    """Return the people whom the rows of a site's tables of people name, where there are no series.

    Faults go to `findings`.
    """
    try:
        names = tables_of(base, words)
    except UnusableFile as verdict:
        findings.add_issue(verdict.issue, POLICY_FILE)
        names = ()
    read = (read_marks(base / name, name, findings, words.other_columns) for name in names)
    tables = [table for table in read if table is not None]
    marked = [table.name for table in tables if table.has_column]
    lines: dict[str, list[Mention | None]] = {}
    for row in (row for table in tables for row in table.rows):
        before = lines.get(row.label, [None])[0]
        lines[row.label] = [before or (row.where if row.everything else None)]
    return PeopleList(
        site=findings.site,
        folder=base,
        source=", ".join(table.name for table in tables),
        people=tuple(
            Person(label=label, runs=(), left_out=str(lines[label][0] or ""))
            for label in sorted(lines, key=natural_key)
        ),
        said=tuple(lines_said(lines, marked, all_read=not findings.blocked)),
    )


def labels_that_recur(labels: Mapping[str, Iterable[str]]) -> str:
    """Return one line about labels that several sites have; "" if none does."""
    sites = Counter(label for each in labels.values() for label in {*map(normal, each)})
    n = sum(count > 1 for count in sites.values())
    if not n:
        return ""
    which = f"{n} label{'s' * (n > 1)} recur{'s' * (n == 1)}"
    return (
        f"{which} at several of the sites {', '.join(labels)}: these count as different people; "
        "waves of the same people are stated by one manifest.csv (docs/howto-inputs.md)"
    )
