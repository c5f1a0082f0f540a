"""Ways to read paths that no rule proves: the parts that vary together are the person.

Paths of one form (equally many words, the same signs between them) are a table with a row per file
and a column per word.  A column that varies is a session, a run, a group or a site if its words say
so; the remaining columns are the person.  One way is inferred, several are a choice, none is a
refusal.  Each way is a list of patterns that the site may type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Final

from cape.data.layout.words import MIN_ID_DIGITS, any_of, is_word, parts, role_of, stem
from cape.frozen import dataclass

_SIGNS: Final = r"_\-. +=,~()"
# With more ways, writing a manifest is less work than choosing.
MAX_READINGS: Final = 5
# More unknown folders than this are taken for sessions only, not for versions or groups.
MAX_CONDITIONS: Final = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class WayToRead:
    """One way to read paths: its patterns, and its meaning besides the person."""

    says: str
    patterns: tuple[str, ...]
    labels: frozenset[str]


# One path: for each segment its words and the signs between them
_Row = tuple[tuple[tuple[str, str], ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Column:
    segment: int  # of the path
    part: int  # of the segment
    values: tuple[str, ...]  # one for each file
    role: str
    classes: tuple[int, ...] = field(default=())  # which files have equal values
    weak: bool = False  # a number below a folder such as rest: of runs, or of people

    @property
    def distinct(self) -> list[str]:
        return list(dict.fromkeys(self.values))

    @property
    def varies(self) -> bool:
        return any(self.classes)

    @property
    def place(self) -> tuple[int, int]:
        return self.segment, self.part


@dataclass(frozen=True, kw_only=True, slots=True)
class _Form:
    """Files of one form, as columns of words."""

    paths: tuple[str, ...]
    rows: tuple[_Row, ...]  # file, segment, (word, between)
    columns: tuple[_Column, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposals:
    """The ways to read paths, best first; `why`: the reason for none, or for not taking one."""

    ways: tuple[WayToRead, ...] = ()
    why: str = ""


def proposals(paths: Sequence[str], names: Sequence[str] = ()) -> Proposals:
    """Return the ways to read paths.

    `names`: labels of the site's own list; a part that is one of them is the person.
    """
    label = re.compile(rf"(?<![A-Za-z0-9]){any_of(names)}(?![A-Za-z0-9])") if names else None
    forms = _forms(paths, label, frozenset(names))
    ways_by_form: list[tuple[WayToRead, ...]] = []
    labels: set[str] = set()
    why = ""
    for form in forms:
        form = _with_known(form, labels)
        some = _of_form(form)
        if not some:
            return Proposals(why=f"no part of {form.paths[0]} names a person")
        if not any(c.role == "subject" or (c.varies and not c.role) for c in form.columns) or (
            any(c.weak for c in form.columns) and not any(c.role == "subject" for c in form.columns)
        ):
            why = "numbers or dates may tell sessions or runs apart, or people"
        ways_by_form.append(some)
        labels |= some[0].labels
    most = max(ways_by_form, key=len)
    joined = tuple(_joined(way, ways_by_form, most) for way in most)
    return Proposals(
        ways=joined, why=why or ("the names can be read in several ways" if len(most) > 1 else "")
    )


def _joined(
    way: WayToRead, forms: Sequence[tuple[WayToRead, ...]], own_form: tuple[WayToRead, ...]
) -> WayToRead:
    """Extend a way to read one form by ways to read the others that find the same people."""
    patterns = list(way.patterns)
    for others in forms:
        if others is not own_form:
            like = max(
                others, key=lambda other: (len(other.labels & way.labels), other.says == way.says)
            )
            patterns += like.patterns
    return WayToRead(says=way.says, patterns=tuple(dict.fromkeys(patterns)), labels=way.labels)


def _forms(
    paths: Sequence[str], label: re.Pattern[str] | None, names: frozenset[str]
) -> list[_Form]:
    by_form: dict[object, list[tuple[str, _Row]]] = {}
    for path in paths:
        *folders, name = path.split("/")
        base = stem(name)
        row = tuple(tuple(parts(segment, label)) for segment in (*folders, base))
        form = (
            name[len(base) :].lower(),
            tuple("".join(b or "w" for _, b in segment) for segment in row),
        )
        by_form.setdefault(form, []).append((path, row))
    groups = {
        word.lower()
        for path in paths
        for word, _ in parts(path.replace("/", "_"))
        if is_word("group", word)
    }
    largest_first = sorted(by_form.values(), key=lambda files: (-len(files), files[0][0]))
    return [_form(files, names, len(groups) > 1) for files in largest_first]


def _form(files: Sequence[tuple[str, _Row]], names: frozenset[str], grouped: bool) -> _Form:
    rows = tuple(row for _, row in files)
    columns = []
    for s in range(len(rows[0])):
        cells = [[word for word, _ in row[s] if word] for row in rows]
        for p in range(len(cells[0])):
            values = tuple(cell[p] for cell in cells)
            index: dict[str, int] = {}
            classes = tuple(index.setdefault(value, len(index)) for value in values)
            before = _before(rows, s, p)
            role = role_of(list(index), before) if len(index) > 1 else ""
            if names and set(index) <= names:
                role = "subject"
            elif grouped and all(is_word("group", value) for value in index):
                role = "group"  # one group of several, which has a form of its own
            weak = (
                role in ("session", "run") and not p and all(value.isdecimal() for value in index)
            )
            columns.append(
                _Column(segment=s, part=p, values=values, role=role, classes=classes, weak=weak)
            )
    return _Form(paths=tuple(path for path, _ in files), rows=rows, columns=tuple(columns))


def _before(rows: Sequence[_Row], s: int, p: int) -> list[str]:
    """Return the constant words right before a part; for a first part the word of its folder."""
    if not p:
        above = {tuple(word for word, _ in row[s - 1] if word) for row in rows} if s else set()
        only = above.pop() if len(above) == 1 else ()
        return list(only) if len(only) == 1 else []
    front = [{[word for word, _ in row[s] if word][n] for row in rows} for n in range(p)]
    same: list[str] = []
    for words in reversed(front):
        if len(words) > 1:
            break
        same.insert(0, words.pop())
    return same


def _with_known(form: _Form, labels: set[str]) -> _Form:
    """Take a column as the person if its words are labels of other forms, but short numbers."""
    sure = {label for label in labels if not (label.isdecimal() and len(label) < MIN_ID_DIGITS)}
    if any(column.role == "subject" for column in form.columns):
        return form
    hits = [
        c
        for c in form.columns
        if 2 * len(set(c.values) & sure) >= len(set(c.values)) and set(c.values) & sure
    ]
    if not hits:
        return form
    columns = tuple(replace(c, role="subject") if c in hits else c for c in form.columns)
    return replace(form, columns=columns)


def _refines(fine: Sequence[int], coarse: Sequence[int]) -> bool:
    seen: dict[int, int] = {}
    return all(seen.setdefault(a, b) == b for a, b in zip(fine, coarse, strict=True))


def _of_form(form: _Form) -> tuple[WayToRead, ...]:
    people = [c for c in form.columns if c.role == "subject"]
    varying = [c for c in form.columns if c.varies]
    if people:
        # Columns with words for people contradict each other unless one of them refines all.
        fine = next(
            (c for c in people if all(_refines(c.classes, o.classes) for o in people)), None
        )
        return () if fine is None else tuple(_ways(form, fine))
    open_ = [c for c in varying if not c.role or c.weak]
    # No column is left: the person can only be a session or a number.
    candidates = open_
    if all(c.weak for c in open_):
        candidates = [c for c in varying if c.weak or c.role == "session"]
    by_class: dict[tuple[int, ...], _Column] = {}
    for column in candidates:
        by_class.setdefault(column.classes, column)
    ranked = sorted(by_class.values(), key=lambda c: (-len(c.distinct), c.place))
    ways = [
        way
        for n, column in enumerate(ranked)
        for way in list(_ways(form, column))[: 1 if n else None]
    ]
    if open_ and len(ranked) > 1:
        ways += _together(form, ranked)
    return tuple(ways[:MAX_READINGS])


def _ways(form: _Form, who: _Column) -> Iterator[WayToRead]:
    """Yield the ways to read a form in which one column is the person."""
    roles: dict[tuple[int, int], str] = {}
    crossing: list[_Column] = []
    for column in form.columns:
        if column.classes == who.classes and (column.varies or column.role == "subject"):
            same = column.values == who.values or column.segment == who.segment
            roles[column.place] = "subject" if same else "any"
        elif column.role == "group":
            roles[column.place] = "group"
        elif not column.varies:
            continue
        elif column.role in ("session", "run", "site") and not (
            column.weak and column.place < who.place
        ):
            roles[column.place] = column.role
        elif column.role == "version":
            continue
        elif _refines(who.classes, column.classes):
            above = column.segment < who.segment
            roles[column.place] = "site" if above else "any"
        elif _refines(column.classes, who.classes):
            roles[column.place] = "run"
        elif who.role == "subject" and column.place > who.place:
            continue  # an unknown word below a known person makes versions
        else:
            crossing.append(column)
    if not crossing:
        yield _proposal(form, roles)
        return
    some = "/".join(crossing[0].distinct[:3])
    for role, what in (
        ("session", "are sessions or runs"),
        ("version", "are versions of one run, of which one line is taken"),
        ("group", "hold other people"),
    ):
        if role == "session" or len(crossing[0].distinct) <= MAX_CONDITIONS:
            given = {column.place: role for column in crossing if role != "version"}
            yield _proposal(form, roles | given, f"{some} {what}")


def _together(form: _Form, columns: Sequence[_Column]) -> Iterator[WayToRead]:
    """Yield the way in which neighbouring columns are one name, such as 12_1."""
    places = sorted(column.place for column in columns)
    if all(a[0] == b[0] and a[1] + 1 == b[1] for a, b in pairwise(places)):
        named = {
            c.place: c.role for c in form.columns if c.varies and c.role not in ("", "version")
        }
        yield _proposal(form, named | dict.fromkeys(places, "subject"))


def _proposal(form: _Form, roles: Mapping[tuple[int, int], str], says: str = "") -> WayToRead:
    roles = _numbered(form, roles)
    patterns = dict.fromkeys(
        _pattern(path, row, roles) for path, row in zip(form.paths, form.rows, strict=True)
    )
    who = [c for c in form.columns if roles.get(c.place) == "subject"]
    first = [c for c in who if c.segment == who[0].segment]
    labels = frozenset("_".join(cells) for cells in zip(*(c.values for c in first), strict=True))
    return WayToRead(says=says, patterns=tuple(patterns), labels=labels)


def _numbered(form: _Form, roles: Mapping[tuple[int, int], str]) -> dict[tuple[int, int], str]:
    """Give a role that comes again with other words a number: session2."""
    given: dict[str, tuple[str, ...]] = {}
    numbered: dict[tuple[int, int], str] = {}
    for column in sorted(form.columns, key=lambda c: c.place):
        role = roles.get(column.place, "")
        if role in ("session", "run", "group", "site"):
            same = next(
                (
                    n
                    for n, values in given.items()
                    if n.rstrip("23") == role and values == column.values
                ),
                "",
            )
            name = same or next(
                (n for n in (role, f"{role}2", f"{role}3") if n not in given), "any"
            )
            given.setdefault(name, column.values)
            role = name
        if role:
            numbered[column.place] = role
    return numbered


def _pattern(path: str, row: _Row, roles: Mapping[tuple[int, int], str]) -> str:
    segments = []
    for s, segment in enumerate(row):
        text, p = "", 0
        for word, between in segment:
            role = roles.get((s, p), "") if word else ""
            literal = re.sub(r"[{}*]", "*", word or between)
            text += literal if not role else "*" if role == "any" else f"{{{role}}}"
            p += bool(word)
        # Neighbouring words of one role are one text.
        segments.append(re.sub(rf"(\{{\w+\}}|\*)(?:[{_SIGNS}]+\1)+", r"\1", text))
    name = path.rpartition("/")[2]
    return "/".join(segments) + name[len(stem(name)) :]
