"""The person of each file of a folder, by file names and the site's own statements.

Levels: ``proved`` by BIDS, by a producer's own rule, by the site's list of people or by a layout
that the site typed; ``inferred``: the names can be read in one way; ``choice``: in several ways;
``unknown``: in none, or they contradict each other.  A private run takes ``proved`` only.
Versions of a run are never joined.  The site is asked about labels that look alike.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import PurePosixPath
from typing import Final, Literal

from cape.data.layout import bids
from cape.data.layout.patterns import Caught, match_pattern
from cape.data.layout.proposals import WayToRead, proposals
from cape.data.layout.words import (
    MIN_ID_DIGITS,
    FileKind,
    Producer,
    any_of,
    is_atlas,
    is_series,
    is_word,
    may_be_series,
    producers,
    producers_table,
    role_of,
    stem,
    words,
)
from cape.frozen import dataclass

Level = Literal["proved", "inferred", "choice", "unknown"]
# The site confirms labels that look alike; kept in the same list as its patterns.
AS_NAMED: Final = "--as-named"
FOLDERS: Final = ("sites", "groups", "sessions", "versions")
# So many consecutively numbered files in one folder are the volumes of one series.
MIN_VOLUMES: Final = 20
# Two people are too few to see which part of the names varies with the person.
MIN_PEOPLE_FOR_RULE: Final = 3
DATASET_MARKS: Final = (
    "dataset_description.json",
    "participants.tsv",
    "site-policy.toml",
    "manifest.csv",
    "manifest.tsv",
)
# Keys by which a file may repeat what others hold in parts.
PARTS: Final = ("run", "dir", "acq", "block")


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """One series, with the person, run and version that its path states."""

    path: str
    subject: str
    run: Mapping[str, str]  # what makes the run: session, task, acquisition, direction, run
    version: str  # equal for all files that were made in the same way
    site: str = ""
    whole: bool = False  # repeats its siblings

    @property
    def person(self) -> tuple[str, str]:
        return self.site, self.subject

    @property
    def acquired(self) -> tuple[object, ...]:
        """Return person and run, which all versions of one acquisition share."""
        return (*self.person, frozenset(self.run.items()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Words to type after ``cape people FOLDER``, and their meaning."""

    says: str
    typed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderReading:
    """The person of each file of a folder, and the level of evidence; private."""

    level: Level
    images: tuple[Image, ...] = ()
    evidence: str = ""  # the rule that proves it, or that was tried
    why: str = ""  # the doubt, where it is not proved
    lines: tuple[Choice, ...] = ()  # any one of them removes the doubt
    commands: tuple[str, ...] = ()  # of other programs, to convert the files
    left: tuple[str, ...] = ()  # series that are not in this layout
    atlases: tuple[str, ...] = ()  # volumes that do not count as data because of their names
    producer: Producer | None = None
    is_empty: bool = False  # there is no series

    @property
    def people(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted({image.person for image in self.images}))

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(sorted({image.site for image in self.images}))


def read_names(
    paths: Sequence[str],
    kind: FileKind,
    *,
    layout: Sequence[str] = (),
    names: Collection[str] = (),
    listed: bool = False,
) -> FolderReading:
    """Return the person of each file, by paths below a folder.

    `layout`: patterns and words that the site confirmed; `names`: labels of its list of people.
    `listed`: the paths are those of a written list, and each is a series.
    """
    series = list(paths) if listed else _series(paths, kind)
    reading = _read_series(series, paths, kind, layout, names)
    if listed or kind != "volume":
        return reading
    atlases = {path for path in paths if is_atlas(path) and may_be_series(path, kind)}
    return replace(reading, atlases=tuple(sorted(atlases - set(series))))


def _read_series(
    series: Sequence[str],
    paths: Sequence[str],
    kind: FileKind,
    layout: Sequence[str],
    names: Collection[str],
) -> FolderReading:
    if not series:
        return _no_series(paths, kind)
    if kind == "volume" and (stacks := _stacks(series)):
        return _of_volumes(stacks)
    patterns = [text for text in layout if not text.startswith("--")]
    if patterns:
        return _checked(_by_patterns(series, patterns), layout)
    asked = _Tops(layout=layout, marks=_marked(paths))
    return (
        _by_producer(series, kind, asked, "person")
        or _by_bids(series, asked)
        or _by_list(series, names)
        or _by_producer(series, kind, asked, "layout")
        or _proposed(series, layout, "")
    )


def _series(paths: Sequence[str], kind: FileKind) -> list[str]:
    series = [path for path in paths if is_series(path, kind)]
    # power_264 among power_001, power_002, ... is a person, not the atlas of that name.
    forms = {re.sub(r"\d+", "0", path) for path in series}
    alike = (p for p in paths if is_atlas(p) and re.sub(r"\d+", "0", p) in forms)
    series += [p for p in alike if p not in series and may_be_series(p, kind)]
    # Text is data where there are no arrays: notes lie beside many.
    arrays = [path for path in series if not path.lower().endswith((".txt", ".1d"))]
    series = arrays or series
    stems = {stem(PurePosixPath(path).name).lower() for path in series}
    if kind == "volume" and stems & {"t2", "t3"}:  # T1 beside T2 is a visit, not anatomy
        series += [
            p
            for p in paths
            if stem(p.rpartition("/")[2]).lower() == "t1"
            and is_series(f"{p[: -len(p.rpartition('/')[2])]}T2.nii", kind)
        ]
    return sorted(series)


def _stacks(series: Sequence[str]) -> list[str]:
    """Return folders that hold one file for each volume: a long row of names that count on."""
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    for path in series:
        folder, _, name = path.rpartition("/")
        if counted := re.fullmatch(r"(.*?)(\d+)", stem(name)):
            rows[folder, counted[1]].append(int(counted[2]))
    return [
        folder
        for (folder, _), numbers in rows.items()
        if len(numbers) >= MIN_VOLUMES
        and max(numbers) - min(numbers) == len(numbers) - 1
        and min(numbers) <= 10
    ]


def _of_volumes(folders: Sequence[str]) -> FolderReading:
    first, more = folders[0] or "the folder", f" and {len(folders) - 1} others"
    why = f"{first}{more if len(folders) > 1 else ''}: one file for each volume (SPM, DPABI)"
    # Written beside the folder: inside, the next command would take it for a volume.
    joined = (
        (shlex.quote(folder or "."), shlex.quote(f"{folder or 'series'}.nii.gz"))
        for folder in folders
    )
    commands = tuple(f"fslmerge -t {out} {folder}/*.nii*" for folder, out in joined)
    return FolderReading(level="unknown", evidence="3-D volumes", why=why, commands=commands)


def _no_series(paths: Sequence[str], kind: FileKind) -> FolderReading:
    for row in producers_table()["refused"]:
        # The first ending is that of the file that is named in the command.
        if named := [path for path in paths if path.endswith(row["ends"][0])]:
            commands = dict.fromkeys(_command(row, path) for path in named)
            why = f"these are {row['name']}"
            return FolderReading(
                level="unknown", evidence=row["name"], why=why, commands=tuple(commands)
            )
    why = f"there is no {kind} series below this folder"
    return FolderReading(level="unknown", why=why, is_empty=True)


def _command(row: Mapping[str, str], path: str) -> str:
    folder, _, name = path.rpartition("/")
    end = row["ends"][0]
    base = name.removesuffix(end)
    # Quoted: file names may hold characters that mean something to a shell.
    words_of = {"folder": folder or ".", "name": f"{folder or '.'}/{base}"}
    return row["type"].format(**{key: shlex.quote(text) for key, text in words_of.items()}, end=end)


def _marked(paths: Iterable[str]) -> frozenset[str]:
    """Return folders that are data sets of their own."""
    split = (path.split("/") for path in paths)
    return frozenset(
        "/".join(parts[:-1]) for parts in split if len(parts) > 1 and parts[-1] in DATASET_MARKS
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tops:
    """The site's statements about folders above people, and the folders that are data sets."""

    layout: Sequence[str]
    marks: frozenset[str]

    @property
    def typed(self) -> str:
        """Return the role that the site typed for the folders; "" without one."""
        typed = (text.split()[1] for text in self.layout if text.startswith("--folders "))
        return next(typed, "").rstrip("s")

    def roles(self, tops: Mapping[str, Collection[str]]) -> list[tuple[str, dict[str, str]]]:
        """Return the role of each level of folders, and the part of each top at that level.

        `tops`: the labels below each top.  "other": no label comes twice; "": the role is unknown.
        """
        split = {top: top.split("/") if top else [] for top in tops}
        levels = []
        for at in range(max(map(len, split.values()))):
            values = {
                top: folders[at] if len(folders) > at else "" for top, folders in split.items()
            }
            if len(set(values.values())) > 1:
                role = self._role(values, split, at, tops)
                typed = self.typed if role in ("", *ASKED) else ""
                levels.append((typed or role, values))
        return levels

    def _role(
        self,
        values: Mapping[str, str],
        split: Mapping[str, Sequence[str]],
        at: int,
        tops: Mapping[str, Collection[str]],
    ) -> str:
        below: dict[str, set[str]] = defaultdict(set)
        for top, value in values.items():
            below[value].update(tops[top])
        if not any(a & b for a, b in combinations(below.values(), 2)):
            return "other"
        named = [value for value in values.values() if value]
        if all(is_word("version", v) for v in named) or all(
            "derivatives" in split[t][:at] for t, v in values.items() if v
        ):
            return "version"
        role = role_of(named) if "" not in below else "?"
        if role in ASKED:
            return role
        above = {"/".join(folders[: at + 1]) for folders in split.values()}
        return "site" if above <= self.marks else ""


def _placed(
    placed_images: Sequence[tuple[str, Image]], asked: _Tops, **known: object
) -> FolderReading:
    """Return the reading of images with proved labels, by the roles of the folders above them."""
    tops: dict[str, set[str]] = defaultdict(set)
    for top, image in placed_images:
        tops[top].add(f"{image.site} {image.subject}")
    roles, level, why = asked.roles(tops), "proved", ""
    images = [image for _, image in placed_images]
    for role, values in roles:
        images = [
            _below(role, values[top], image)
            for (top, _), image in zip(placed_images, images, strict=True)
        ]
        if not role:
            level, why = (
                "choice",
                f"{', '.join(sorted(filter(None, set(values.values())))[:6])} hold the same labels",
            )
        elif role in ASKED and level == "proved" and not asked.typed:
            level, why = "inferred", f"only the names of folders say that they are {role}s"
    guess = next((role for role, _ in roles if role in ASKED), "")
    asks = (
        ()
        if level == "proved"
        else FOLDERS
        if level == "choice"
        else ("sessions" if guess == "run" else f"{guess}s",)
    )
    lines = tuple(Choice(says=_FOLDERS_SAY[name], typed=("--folders", name)) for name in asks)
    reading = FolderReading(level=level, images=tuple(images), why=why, lines=lines, **known)  # type: ignore[arg-type]
    return _checked(reading, asked.layout)


def _below(role: str, part: str, image: Image) -> Image:
    """Return an image below a folder of a role."""
    if part and role in ("session", "run"):
        earlier = image.run.get("folder", "")
        return replace(image, run={**image.run, "folder": f"{earlier} {part}".strip()})
    if part and role in ("site", "other"):
        return replace(
            image,
            site=f"{image.site} {part}".strip() if role == "site" or not image.site else image.site,
        )
    return replace(image, subject=f"{part} {image.subject}") if part and role == "group" else image


ASKED: Final = ("session", "run", "group", "site")
_FOLDERS_SAY: Final = {
    "sites": "the folders are sites, with other people in each",
    "groups": "the folders are groups, with other people in each",
    "sessions": "the folders are sessions or runs of the same people",
    "versions": "the folders hold versions of the same runs",
}


def _caught_image(path: str, caught: Caught) -> Image:
    who = " ".join(filter(None, (caught.said("group"), caught.said("subject"))))
    run = {
        role: bids.by_value(caught.said(role)) for role in ("session", "run") if caught.said(role)
    }
    return Image(path=path, subject=who, site=caught.said("site"), run=run, version=caught.template)


def _fitting(series: Sequence[str], patterns: Sequence[str]) -> dict[str, Caught]:
    """Return the catch of the first pattern that fits each path, trying the most literal first."""
    ranked = sorted(patterns, key=lambda pattern: pattern.count("{") + 2 * pattern.count("*"))
    catches = {}
    for path in series:
        caught = next(filter(None, (match_pattern(pattern, path) for pattern in ranked)), None)
        if caught is not None:
            catches[path] = caught
    return catches


def _by_patterns(series: Sequence[str], patterns: Sequence[str]) -> FolderReading:
    catches = _fitting(series, patterns)
    left = tuple(path for path in series if path not in catches)
    images = tuple(_caught_image(path, caught) for path, caught in catches.items())
    if not images:
        return FolderReading(
            level="unknown", why=f"the layout {patterns[0]} fits no file", left=left
        )
    return FolderReading(
        level="proved", images=images, evidence="the layout that the site typed", left=left
    )


def _by_producer(
    series: Sequence[str], kind: FileKind, asked: _Tops, proves: str
) -> FolderReading | None:
    for row in producers():
        if kind not in row.kinds or row.proves != proves:
            continue
        catches = _fitting(series, row.series)
        if not catches or 2 * len(catches) < len(series):
            continue
        left = tuple(path for path in series if path not in catches)
        if proves == "layout":
            return _proposed(tuple(catches), asked.layout, row.name, why=row.say, left=left)
        images = [(caught.top, _caught_image(path, caught)) for path, caught in catches.items()]
        return _placed(images, asked, evidence=row.name, producer=row, left=left)
    return None


def _by_bids(series: Sequence[str], asked: _Tops) -> FolderReading | None:
    labels = {path: bids.subject_label(path) for path in series if "sub-" in path}
    odd = next((why for _, why in labels.values() if why), "")
    if odd:
        return FolderReading(level="unknown", evidence="BIDS", why=odd)
    if (
        2 * len(labels) < len(series)
        or not all(label for label, _ in labels.values())
        or not labels
    ):
        return None
    images = [
        (
            bids.top_of(path, label),
            Image(
                path=path,
                subject=label,
                run=bids.entities_of_run(path),
                version=bids.version_of(path, label),
            ),
        )
        for path, (label, _) in labels.items()
    ]
    left = tuple(path for path in series if path not in labels)
    return _placed(images, asked, evidence="BIDS", left=left)


def _by_list(series: Sequence[str], names: Collection[str]) -> FolderReading | None:
    """Take the site's own list, if every file holds just one of its names."""
    labels = {re.sub(r"^sub-", "", name) for name in names}
    if not labels or any(len(n) < 3 or (n.isdecimal() and len(n) < MIN_ID_DIGITS) for n in labels):
        return None  # such names could be numbers of runs
    name = re.compile(rf"(?<![A-Za-z0-9]){any_of(labels)}(?![A-Za-z0-9])")
    if not all(len(set(name.findall(path))) == 1 for path in series):
        return None
    proposed = proposals(series, tuple(labels))
    if len(proposed.ways) != 1 or proposed.why:
        return None
    reading = _by_patterns(series, proposed.ways[0].patterns)
    if reading.left or {image.subject.rpartition(" ")[2] for image in reading.images} - labels:
        return None
    return _checked(replace(reading, evidence="the site's list of people"), ())


def _proposed(
    series: Sequence[str],
    layout: Sequence[str],
    tried: str,
    *,
    why: str = "",
    left: tuple[str, ...] = (),
) -> FolderReading:
    """Return the reading of names that no rule proves: inferred, a choice, or unknown."""
    proposed = proposals(series)
    unread = FolderReading(level="unknown", evidence=tried, why=proposed.why, left=left)
    if not proposed.ways:
        return unread
    reads = [_by_patterns(series, way.patterns) for way in proposed.ways]
    first, lines = reads[0], tuple(_lines(reads, proposed.ways))
    if not proposed.why and not _tell_runs_apart(first.images):
        alone = proposed.ways[0].patterns
        lines = tuple(Choice(says=f"the files of {p} alone", typed=("--layout", p)) for p in alone)
    reading = replace(unread, level="choice", images=first.images, lines=lines)
    if proposed.why or first.left:
        return replace(reading, why=proposed.why or f"{first.left[0]} is of another form")
    if not _tell_runs_apart(first.images):
        return replace(reading, why="files of one person say in different ways which run they are")
    if len(first.people) < 2 or (odd := _odd_forms(first.images)):
        said_why = odd if len(first.people) > 1 else "the names do not tell people apart"
        return replace(reading, level="unknown", why=said_why, lines=())
    if len(first.people) < MIN_PEOPLE_FOR_RULE:
        return replace(reading, why="so few names show no rule")
    why = why or "only names show whose the files are"
    return _checked(replace(reading, level="inferred", why=why), layout)


def _lines(reads: Sequence[FolderReading], ways: Sequence[WayToRead]) -> Iterator[Choice]:
    for reading, way in zip(reads, ways, strict=True):
        for patterns in _versions_apart(reading, way.patterns):
            typed = tuple(word for pattern in patterns for word in ("--layout", pattern))
            # Counted as after typing the line: 001 at two sites is two people.
            people = _by_patterns([image.path for image in reading.images], patterns).people
            first = ", ".join(dict.fromkeys(label for _, label in people[:3]))
            also = f"; {way.says}" if way.says else ""
            yield Choice(says=f"{len(people)} people ({first}){also}", typed=typed)


def _odd_forms(images: Sequence[Image]) -> str:
    """Return how names of several forms contradict each other; empty if they do not."""
    groups = {len(image.subject.split(" ")) for image in images}
    if len(groups) > 1:
        some = sorted({image.subject for image in images})[:3]
        return f"some names hold a group and others do not: {', '.join(some)}"
    above: dict[str, set[str]] = defaultdict(set)
    for image in images:
        above[image.version.partition("{subject")[0].rpartition("/")[0]].add(image.subject)
    for (a, mine), (b, theirs) in combinations(above.items(), 2):
        same = mine & theirs
        parts = zip(a.split("/"), b.split("/"), strict=False)
        if same and not all(
            x == y or role_of([x, y]) in ("session", "run", "version") for x, y in parts
        ):
            return f"{a or '.'} and {b or '.'} hold the same label, {min(same)}"
    return ""


def _tell_runs_apart(images: Sequence[Image]) -> bool:
    """Tell whether all files of a person name their run by the same roles."""
    keys: dict[tuple[str, str], set[frozenset[str]]] = defaultdict(set)
    for image in images:
        keys[image.person].add(frozenset(image.run))
    return all(len(each) == 1 for each in keys.values())


def _versions_apart(reading: FolderReading, patterns: Sequence[str]) -> list[list[str]]:
    """Return sets of patterns to type together; patterns of the same runs are in different sets."""
    held = {
        p: {i.acquired for i in reading.images if match_pattern(p, i.path) is not None}
        for p in patterns
    }
    # The more steps are in a name, the later it was made: swrarest before wrarest before rest.
    ranked = sorted(patterns, key=lambda p: (-len(p), p))
    sets: list[list[str]] = []
    for pattern in ranked:
        home = next((s for s in sets if not any(held[pattern] & held[other] for other in s)), None)
        if home is None:
            sets.append([pattern])
        else:
            home.append(pattern)
    return sets


def version_lines(reading: FolderReading) -> tuple[Choice, ...]:
    """Return lines that choose one version where a proved reading has several of a run."""
    if reading.evidence == "BIDS" and not all("task-" in image.path for image in reading.images):
        # BIDS reads session words that it does not know as versions.
        proposed = proposals([image.path for image in reading.images])
        reads = [
            _by_patterns([i.path for i in reading.images], way.patterns) for way in proposed.ways
        ]
        same = [
            (read, way)
            for read, way in zip(reads, proposed.ways, strict=True)
            if len(read.people) == len(reading.people)
        ]
        return tuple(_lines([read for read, _ in same], [way for _, way in same]))
    patterns = _templates(reading)
    sets = _versions_apart(reading, patterns)
    says = f"{len(reading.people)} people, by this version of each run"
    layouts = (tuple(w for pattern in some for w in ("--layout", pattern)) for some in sets)
    return tuple(Choice(says=says, typed=typed) for typed in layouts)


_VISIT: Final = rf"{any_of(words('session'))}\d{{0,3}}|[vt]\d|scan\d+|run\d+|m\d\d"
_LONG_VISIT: Final = r"(?:baseline|followup|session|visit|retest|pre|post|test)\d{0,2}"
# A short word must follow a digit or a sign: subject1 holds no visit t1.
_VISIT_BEHIND: Final = re.compile(
    rf"(?P<stem>.+?)(?:[-_]|(?<=\d))(?:{_VISIT})|(?P<word>.+?)(?:{_LONG_VISIT})", re.I
)
_LETTER_BEHIND: Final = re.compile(r"(?P<stem>.*\d)[A-Za-z]")
_LETTER_BEFORE: Final = re.compile(r"[A-Za-z]+[-_]?(?P<stem>\d+)")
_ONE_PERSON: Final = (
    (_VISIT_BEHIND, r"{subject=.*?\d[-_]?}{session=[A-Za-z]+\d*}"),
    (_LETTER_BEHIND, r"{subject=.*\d}{session:letters}"),
    (_LETTER_BEFORE, r"{session:letters}{subject:digits}"),
)


def _checked(reading: FolderReading, layout: Sequence[str]) -> FolderReading:
    """Lower the level if labels look alike, and mark files that repeat others of their person."""
    typed = any(not text.startswith("--") for text in layout)
    by_site: dict[str, set[str]] = defaultdict(set)
    for site, subject in reading.people:
        by_site[site].add(subject)
    for labels in () if AS_NAMED in layout else by_site.values():
        if why := look_alike(labels, layout):
            return replace(reading, level="unknown", why=why, lines=())
        if not typed and (asked := _one_or_two(reading, labels)):
            return asked
    return replace(reading, images=_wholes(reading))


def _one_or_two(reading: FolderReading, labels: Collection[str]) -> FolderReading | None:
    from_table = reading.producer is not None or reading.evidence == "BIDS"
    for form, role in _ONE_PERSON[: 2 if from_table else 3]:
        stems: dict[str, list[str]] = defaultdict(list)
        for label in sorted(labels):
            if matched := form.fullmatch(label):
                stems[(matched["stem"] or matched.groupdict().get("word") or "").lower()].append(
                    label
                )
        alike = next((each for each in stems.values() if len(each) > 1), None)
        if alike is None:
            continue
        templates = [p.replace("{session", "{session2") for p in _templates(reading)]
        patterns = dict.fromkeys(
            p.replace("{subject}", role, 1).replace("{subject}", "*") for p in templates
        )
        joining = tuple(word for pattern in patterns for word in ("--layout", pattern))
        # Confirming a layout confirms its labels.
        separating = reading.lines[0].typed if reading.lines else (AS_NAMED,)
        both = " and ".join(alike[:2])
        lines = (
            Choice(says=f"{both} are different people", typed=separating),
            Choice(says=f"{both} are one person", typed=joining),
        )
        return replace(
            reading,
            level="choice",
            why=f"{both}: one person seen twice, or two people?",
            lines=lines,
        )
    return None


def _templates(reading: FolderReading) -> list[str]:
    """Return the patterns of a reading with {subject}, without files that repeat others."""
    blank = bids.path_pattern if reading.evidence == "BIDS" else (lambda path, label: "")
    parts = (image for image in reading.images if not image.whole)
    return list(dict.fromkeys(blank(i.path, i.subject) or i.version for i in parts))


def look_alike(labels: Iterable[str], layout: Sequence[str]) -> str:
    """Return a question about two labels that look alike; "" without any, or if they are confirmed.

    Such labels differ only in case, zeros, signs or a word in front.
    """
    if AS_NAMED in layout:
        return ""
    by_spelling: dict[str, str] = {}
    some = any_of(words("subject"))
    for label in sorted(labels):
        text = re.sub(r"[^a-z0-9 ]", "", label.lower())
        text = re.sub(rf"^{some}(?=\d|[a-z]+\d)", "", text)
        key = re.sub(r"(?<!\d)0+(?=\d)", "", text)
        bare = re.fullmatch(r"[a-z]+0*(\d{1,6})", text)
        for other in (key, bare[1] if bare else key):
            if other in by_spelling:
                return f"{by_spelling[other]} and {label}: one person or two?"
        by_spelling[key] = label
    return ""


def _wholes(reading: FolderReading) -> tuple[Image, ...]:
    """Mark files that lack an entity by which several others of the person differ: repeats."""
    parts = reading.producer.whole if reading.producer else ()
    mine: dict[tuple[str, str], set[frozenset[tuple[str, str]]]] = defaultdict(set)
    for image in reading.images:
        mine[image.person].add(frozenset(image.run.items()))
    images = []
    for image in reading.images:
        run = frozenset(image.run.items())
        more = [other - run for other in mine[image.person] if run < other]
        repeats = any(all(key in PARTS for key, _ in extra) for extra in more)
        images.append(
            replace(image, whole=True)
            if repeats or any(p in f"/{image.path}" for p in parts)
            else image
        )
    return tuple(images)
