"""People, runs and versions by names of BIDS or a typed layout; confound tables beside images.

No file is opened here.
"""

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from cape.data.file_type import suffix_of
from cape.data.issues import IssueCode, UnusableFile
from cape.data.runs import SiteRun
from cape.errors import ConfigError
from cape.frozen import dataclass

# Entities that make another run; any other one makes another version of the same run.
RUN_MAKERS: Final = ("ses", "task", "acq", "dir", "run")
# Entities that tell runs of a session apart in the names of results, in the order of BIDS
RUN_ENTITIES: Final = ("task", "acq", "ce", "rec", "dir", "run", "echo")
# Last words of names of series; a name may also end with an entity or its label.
SERIES: Final = ("bold", "timeseries")
CONFOUND_ENDS: Final = ("_desc-confounds_timeseries.tsv", "_desc-confounds_regressors.tsv")
# Tables of BIDS beside the series of a person, which have the last words of series
NO_SERIES: Final = ("confounds", "carpetplot")
_ENTITY: Final = re.compile(r"([A-Za-z]+)-(.+)")

Entities = tuple[tuple[str, str], ...]


def has_all(entities: Mapping[str, str], wanted: Entities) -> bool:
    """Tell whether a name has all wanted entities; ``+`` separates alternatives."""
    return all(entities.get(key) in value.split("+") for key, value in wanted)


@dataclass(frozen=True, kw_only=True, slots=True)
class BidsName:
    """What a path states by BIDS."""

    label: str  # of the person, without ``sub-``; as written
    entities: Mapping[str, str]  # without ``sub``; ``ses`` also from the folder
    suffix: str  # the last word, empty if the name has none

    @property
    def run(self) -> dict[str, str]:
        """Return the entities that make the run, in the order of the name."""
        return {key: text for key, text in self.entities.items() if key in RUN_MAKERS}


def read_name(path: str) -> BidsName | None:
    """Return what a path below a site's folder states by BIDS; None: nothing, it is not of BIDS.

    `UnusableFile`: folders and name contradict each other.
    """
    *folders, name = path.split("/")
    stem = name[: -len(suffix_of(name))]
    if not stem.startswith("sub-"):
        return None
    of_folders = _of_folders(path, folders, "sub")
    label = of_folders or stem[4:].partition("_")[0].partition(".")[0]
    rest = stem[4 + len(label) :]
    if not stem[4:].startswith(label) or (rest and rest[0] not in "_."):
        named = stem[4:].partition("_")[0]
        raise UnusableFile(
            IssueCode.NAMES_CONTRADICT, f"{path}: the folder says {label}, the name {named}"
        )
    # BIDS forbids signs in labels: where one of them ends is certain only if the folder says it.
    if not (of_folders or label.isalnum()):
        return None
    entities, suffix = _entities(path, [part for part in rest.split("_") if part])
    if suffix is None:
        return None
    session = _of_folders(path, folders, "ses")
    if session and entities.setdefault("ses", session) != session:
        observed = f"{path}: the folder says ses-{session}, the name ses-{entities['ses']}"
        raise UnusableFile(IssueCode.NAMES_CONTRADICT, observed)
    return BidsName(label=label, entities=entities, suffix=suffix)


def _entities(path: str, parts: Sequence[str]) -> tuple[dict[str, str], str | None]:
    """Return entities and last word of a name; None: a word stands where none may."""
    entities: dict[str, str] = {}
    suffix = ""
    for n, part in enumerate(parts):
        if matched := _ENTITY.fullmatch(part):
            key, text = matched.groups()
            if entities.setdefault(key, text) != text:
                observed = f"{path}: {key}-{entities[key]} and {key}-{text}"
                raise UnusableFile(IssueCode.NAMES_CONTRADICT, observed)
        elif n == len(parts) - 1:
            suffix = part
        else:
            return {}, None
    return entities, suffix


def _of_folders(path: str, folders: Sequence[str], key: str) -> str:
    """Return the value that folders such as ``sub-01`` or ``sub-01_ses-1`` say; "" without one."""
    # A label may hold signs: it ends where the next entity begins.
    value = re.compile(rf"(?:^|_){key}-(.+?)(?=_[A-Za-z]+-|$)")
    said = {matched[1] for part in folders if (matched := value.search(part))}
    if len(said) > 1:
        observed = f"{path}: folders say {' and '.join(sorted(said))}"
        raise UnusableFile(IssueCode.NAMES_CONTRADICT, observed)
    return said.pop() if said else ""


def why_no_series(named: BidsName) -> str:
    """Return why a name is none of a series; "" if it is."""
    if named.suffix and named.suffix not in SERIES:
        return f"its name ends with {named.suffix}, and a series is called bold or timeseries"
    if named.entities.get("desc") in NO_SERIES:
        return f"desc-{named.entities['desc']} is no series"
    return ""


def run_key(run: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what two files of one run share; numbers count by their value, 1 as 01."""
    return tuple(sorted((key, by_value(text)) for key, text in run.items()))


def by_value(text: str) -> str:
    """Return a text as it tells runs apart: a number without leading zeros, small letters."""
    return text.lstrip("0") or "0" if text.isdecimal() else text.casefold()


def differing_entity(names: Sequence[BidsName]) -> str:
    """Return the first entity in which versions of one run differ; "" if they differ in none."""
    keys = dict.fromkeys(key for named in names for key in named.entities)
    return next((k for k in keys if len({n.entities.get(k) for n in names}) > 1), "")


def part_that_others_have(run: Mapping[str, str], others: Collection[Mapping[str, str]]) -> str:
    """Return an entity by which a run without it may repeat another; "" if none.

    So does the series that some programs join from the runs of a task.
    """
    own = set(run_key(run))
    more = (other for other in others if own < set(run_key(other)))
    lacks = [key for other in more for key in reversed(RUN_MAKERS) if key in other.keys() - run]
    return lacks[0] if lacks else ""


def confounds_beside(image: Path) -> Path | None:
    """Return the table of an image's run, None if there is none.

    One table serves all versions of a run: its name lacks their last entities, except those of
    another run.
    """
    named = image.name.split(".")[0].split("_")[:-1]
    while named and "-" in named[-1]:
        for end in CONFOUND_ENDS:
            table = image.with_name("_".join(named) + end)
            # A link without content counts, so that a later check reports it.
            if table.is_file() or table.is_symlink():
                return table
        if named[-1].partition("-")[0] in (*RUN_MAKERS, "sub"):
            return None
        named.pop()
    return None


def names_of_runs(runs: Sequence[SiteRun]) -> list[tuple[str, str]]:
    """Return session and other entities of each run of a person, ("ses-1", "task-rest_run-1").

    If names repeat, runs are numbered.
    """
    sessions = [_bare(run.session.removeprefix("ses-")) for run in runs]
    entities = [_run_entities(run.run) for run in runs]
    if len({*zip(sessions, map(_joined, entities), strict=True)}) < len(runs):
        entities = [{**named, "run": str(k)} for k, named in enumerate(entities, start=1)]
    return [
        (session and f"ses-{session}", _joined(named))
        for session, named in zip(sessions, entities, strict=True)
    ]


def _run_entities(text: str) -> dict[str, str]:
    # A list says "2", the name of an image "task-rest_run-2"; a folder's name may say anything.
    given = dict(part.split("-", 1) for part in text.split("_") if "-" in part) or {"run": text}
    return {key: _bare(given[key]) for key in RUN_ENTITIES if _bare(given.get(key, ""))}


def _bare(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "", text)


def _joined(entities: Mapping[str, str]) -> str:
    return "_".join(f"{key}-{entities[key]}" for key in RUN_ENTITIES if key in entities)


# -- layouts -------------------------------------------------------------------------------------
# The pattern of the whole path below the site's folder, ``{subject}/{session}/rest.nii.gz``:
# ``{subject}``, ``{session}`` and ``{run}`` stand for texts without ``/``, ``*`` for any text
# without ``/``.  A role that stands twice has the same text.

ROLES: Final = ("subject", "session", "run")
_PIECES: Final = re.compile(r"(\{[^{}]*\}|\*)")
# A pattern is one typed line; the bound keeps the search of a hostile one short.
MAX_PATTERN_LETTERS: Final = 1000
MAX_PIECES: Final = 12


def roles_in(pattern: str, path: str) -> Mapping[str, str] | None:
    """Return the texts of the roles in a path; None: the pattern does not fit.

    `UnusableFile`: it fits in two ways, so that it does not say who the person is.
    """
    matches = [regex.fullmatch(path) for regex in _compiled(pattern)]
    first, last = (matched and matched.groupdict() for matched in matches)
    if first != last:
        both = " or ".join(str((roles or {}).get("subject")) for roles in (first, last))
        raise UnusableFile(IssueCode.LAYOUT_TWO_WAYS, f"{path}: {both}?", pattern=pattern)
    return first


def check_pattern(pattern: str) -> None:
    """Raise ConfigError E016 if a text is no pattern or lacks {subject}."""
    pieces = _PIECES.findall(pattern)
    unknown = [piece for piece in pieces if piece != "*" and piece[1:-1] not in ROLES]
    if unknown:
        problem = f"{unknown[0]} is none of {{subject}}, {{session}}, {{run}}"
    elif "{subject}" not in pieces:
        problem = "it has no {subject}"
    elif len(pattern) > MAX_PATTERN_LETTERS or len(pieces) > MAX_PIECES:
        problem = f"it has more than {MAX_PATTERN_LETTERS} letters or {MAX_PIECES} of {{}} and *"
    elif pattern.startswith("/") or ".." in pattern.split("/"):
        problem = "it leads out of the folder"
    else:
        return
    do = "write the path of one file below the folder, with {subject} in place of the person's "
    do += "label, {session} and {run} where these stand."
    raise ConfigError(
        "E016", problem=f"the layout cannot be used: {problem}", do=do, detail=pattern
    )


@functools.cache
def _compiled(pattern: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return regexes of the shortest and of the longest texts: a clear pattern fits both alike."""
    check_pattern(pattern)
    both = []
    for ends in ("?", ""):
        out, seen = "", set[str]()
        for piece in _PIECES.split(pattern.removeprefix("./")):
            role = piece[1:-1] if piece.startswith("{") else ""
            if piece == "*":
                out += f"[^/]*{ends}"
            elif role in seen:
                out += f"(?P={role})"
            elif role:
                out += f"(?P<{role}>[^/]+{ends})"
                seen.add(role)
            else:
                out += re.escape(piece)
        both.append(re.compile(out))
    return both[0], both[1]
