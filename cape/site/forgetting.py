"""What a site keeps of one person in its working folders, and its removal.

Deleted is what was made of the person's data: entries of the data store, time courses, maps and
rows of tables in private folders, lines of notes, arrays and journals of runs that cannot go on.
The ledger of all runs is only read: what was spent stays spent, or a person who comes back would
begin a new account.

Every step can be repeated, and the table that says which files are whose is the last of its folder
to change: after an interruption the same command does the rest.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from cape.data.data_store import DataStore
from cape.data.names import bare, likeness
from cape.frozen import dataclass
from cape.privacy.cost import Cost
from cape.privacy.spending import Spending, sum_up
from cape.report import files, rebuild
from cape.report.private_folder import PEOPLE_TABLE, SUBJECT_TABLE
from cape.site.files import folder_lock, is_locked, write_atomically
from cape.site.ledger_file import LEDGER_NAME, ListedPerson, key_of, names_the_site, read_ledger
from cape.site.store import FileStore

_NOTES: Final = ("site-error.txt", "site-notice.txt")
_ARRAYS: Final = "cape-*.arrays"
_JOURNAL: Final = ".cape"
_PRIVATE: Final = "private"
_SITE_JSON: Final = "site.json"
_OF_RUN: Final = "cape-site.json"
_HOME: Final = ".cape-site"
BUSY: Final = "a run computes here now; type this again later"
# States of a run that may still ask for its people's data
_OPEN: Final = ("asked", "held")


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """One place that holds something made of a person's data."""

    path: Path
    what: str
    remove: Callable[[], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stays:
    """One place that is left as it is, and why."""

    path: Path
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Charged:
    """The runs of a ledger that list a person, and their cost together."""

    path: Path
    runs: int  # of the ledger
    listed: int  # of these, the runs in which the person was recognised
    cost: Cost
    delta: float | None  # the smallest of these runs
    lacks: str  # without which names cannot be compared; empty where they were
    open_runs: tuple[str, ...]  # nonces of those that may go on


@dataclass(frozen=True, kw_only=True, slots=True)
class Traces:
    """All that a site keeps of one person in some folders."""

    label: str  # in normal form
    is_known: bool  # whether anything here is of the person, not of a run of all
    removals: tuple[Removal, ...]
    stays: tuple[Stays, ...]
    charged: tuple[Charged, ...]
    alike: tuple[str, ...]  # labels that look like this one, which are not touched

    def remove(self) -> None:
        """Delete; OSError leaves the rest for the next call."""
        for removal in self.removals:
            removal.remove()


def traces_of(
    person: str,
    folders: Sequence[Path],
    *,
    store: Path | None = None,
    ledgers: Collection[Path] = (),
    dataset_id: str = "",
) -> Traces:
    """Find what is kept of a person, below `folders`, in a store and in ledgers.

    `store` and `ledgers` are the site's own; others that lie below `folders` are found.
    `dataset_id` is that of the site's policy, beside those that the ledger names.
    """
    label = bare(person)
    below = [Path(at) for folder in folders for at, _, _ in os.walk(folder)]
    private = [
        at
        for at in below
        if at.name == _PRIVATE
        and all((at / name).is_file() for name in (SUBJECT_TABLE, _SITE_JSON))
    ]
    labels = {row["label"] for at in private for row in files.read_table(at / SUBJECT_TABLE)}
    own = {text for text in labels if bare(text) == label}
    homes = [at for at in below if at.name == _HOME]
    paths = {*ledgers, *(at / LEDGER_NAME for at in homes)}
    spending = {path: read_ledger(path) for path in sorted(paths) if path.is_file()}
    states = {run.run: run.state for each in spending.values() for run in each.runs}
    of_runs, stays = _of_runs(below, states)
    removals: list[Removal] = []
    for at in private:
        if is_locked(at.parent):
            stays.append(Stays(path=at, why=BUSY))
        else:
            removals += _of_private(at, label)
    for at in below:
        removals += _of_notes(at, _names({*own, f"sub-{label}"}))
    for at in dict.fromkeys(filter(None, (store, *(home / "data" for home in homes)))):
        removals += _of_store(at, label)
    # Written by every run, also where nothing about single people is
    finished = (at / _OF_RUN for at in below if (at / _OF_RUN).is_file())
    sites = {str(files.read_json(path).get("site")) for path in finished}
    charged = [
        _charged(path, each, own | {label, f"sub-{label}"}, sites, dataset_id)
        for path, each in spending.items()
    ]
    alike = {text for text in labels - own if likeness(bare(text)) == likeness(label)}
    return Traces(
        label=label,
        is_known=bool(own or removals or any(each.listed for each in charged)),
        removals=(*of_runs, *removals),
        stays=tuple(stays),
        charged=tuple(charged),
        alike=tuple(sorted(alike)),
    )


# -- private folders -----------------------------------------------------------------------------


def _of_private(folder: Path, label: str) -> Iterator[Removal]:
    """Yield what a private folder holds of a person; a missing page is made again."""
    rows = [row for row in files.read_table(folder / SUBJECT_TABLE) if bare(row["label"]) == label]
    stems = {row["subject"] for row in rows} - {files.EMPTY_CELL}
    names = {name for row in rows for name in (row["label"], *row["files"].split("; "))}
    named = _names({*names, *(Path(name).name for name in names), *stems})
    tables = {
        path: kept
        for path in sorted(folder.glob("*.tsv"), key=lambda path: path.name == SUBJECT_TABLE)
        if (kept := _without(path, label, stems, named)) is not None
    }
    # Never what a damaged table might name
    own = [folder / stem for stem in sorted(stems) if re.fullmatch(r"sub-[A-Za-z0-9]+", stem)]
    own = [at for at in own if at.is_dir()]
    if not (tables or own) and (folder / "index.html").exists():
        return
    files_of = sum(1 for at in own for path in at.rglob("*") if path.is_file())
    what = f"{files_of} files of time courses and maps, rows of {len(tables)} tables"
    what += "; index.html is made again"

    def remove() -> None:
        # The page first: it shows people, and its absence tells that the rest is not done.
        (folder / "index.html").unlink(missing_ok=True)
        for at in own:
            shutil.rmtree(at)
        for path, kept in tables.items():
            _write_table(path, kept)
        rebuild(folder)

    yield Removal(path=folder, what=what, remove=remove)


_Rows = tuple[list[str], list[dict[str, str]]]


def _without(
    path: Path, label: str, stems: Collection[str], named: re.Pattern[str]
) -> _Rows | None:
    """Return the header and the rows of a table that are not the person's; None if all are not."""
    rows = files.read_table(path)
    header = list(rows[0]) if rows else []
    if path.name == SUBJECT_TABLE:
        kept = [row for row in rows if bare(row["label"]) != label]
    elif path.name == PEOPLE_TABLE:  # which has labels
        kept = [row for row in rows if bare(row[header[0]]) != label]
    elif path.name == "checks.tsv":
        kept = [row for row in rows if not named.search(row["text"])]
    else:
        kept = [row for row in rows if row[header[0]] not in stems]
    return (header, kept) if len(kept) < len(rows) else None


def _write_table(path: Path, table: _Rows) -> None:
    header, rows = table
    partial = path.with_name(f"{path.name}.partial")
    files.write_table(partial, header, ([row[name] for name in header] for row in rows))
    os.replace(partial, path)


def _names(names: Collection[str]) -> re.Pattern[str]:
    """Return a pattern that finds one of these names in a text, whole; none finds nothing."""
    texts = "|".join(re.escape(name) for name in sorted({*names} - {files.EMPTY_CELL, ""}))
    # 001 is not in 0.001
    return re.compile(rf"(?<![^\W_])(?<!\.)(?:{texts or '(?!)'})(?![^\W_])")


# -- notes, stores, runs -------------------------------------------------------------------------


def _of_notes(folder: Path, named: re.Pattern[str]) -> Iterator[Removal]:
    for path in (folder / name for name in _NOTES):
        if not path.is_file():
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        kept = [line for line in lines if not named.search(line)]
        if len(kept) < len(lines):
            text = "".join(kept).encode()
            yield Removal(
                path=path,
                what=f"{len(lines) - len(kept)} lines that name the person",
                remove=functools.partial(write_atomically, path, text),
            )


def _of_store(folder: Path, label: str) -> Iterator[Removal]:
    store = DataStore.open(folder) if folder.is_dir() else None
    if store is not None and (entries := store.size(label)[0]):
        # Of a label, in all studies: copies, which may lie under other folders than today's files
        what = f"{entries} entries of the data store: copies of everybody called {label}, or of "
        what += "unknown people, in all studies; they are read again when needed"
        yield Removal(path=folder, what=what, remove=functools.partial(_clear_store, store, label))


def _clear_store(store: DataStore, label: str) -> None:
    store.clear(label)


def _of_runs(below: Sequence[Path], states: Mapping[str, str]) -> tuple[list[Removal], list[Stays]]:
    """Return working arrays and journals of runs: what can go, and what a run still needs."""
    removals, stays = [], []
    for at in below:
        for path in sorted(at.glob(_ARRAYS)):
            what = "reduced data of all people of a run, which a run that goes on reads again"
            removals.append(Removal(path=path, what=what, remove=functools.partial(_unlink, path)))
        if at.name != _JOURNAL:
            continue
        nonces = [path.name for path in at.iterdir() if path.is_dir()]
        goes_on = [nonce for nonce in nonces if states.get(nonce) in _OPEN]
        if any(is_locked(place) for place in (at.parent, at.parent.parent)):
            stays.append(Stays(path=at, why=BUSY))
        elif goes_on:
            do = f"cape ledger close {goes_on[0][:8]} --why TEXT, then type this again"
            stays.append(Stays(path=at, why=f"its run may go on, with this person: {do}"))
        else:
            known = any(nonce in states for nonce in nonces)
            what = f"the journal of a run that {'has ended' if known else 'then cannot go on'}"
            removals.append(Removal(path=at, what=what, remove=functools.partial(_clear, at)))
    return removals, stays


def _clear(journal: Path) -> None:
    with folder_lock(journal.parent, "this folder", patience=0.0):
        FileStore(journal.parent, journal.parent, "").clear()


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(".seen").unlink(missing_ok=True)


# -- the ledger, which is only read --------------------------------------------------------------


def _digests(
    key: bytes, names: Collection[str], sites: Collection[str], datasets: Collection[str]
) -> frozenset[str]:
    spellings = tuple(text for name in names for text in (bare(name), likeness(bare(name))))
    # Without the name of the site, and with it in runs of earlier versions
    contexts = [(*site, dataset) for site in ((), *((s,) for s in sites)) for dataset in datasets]
    return frozenset(
        digest
        for name in names
        for digest in ListedPerson(label=name, files=(), spellings=spellings)
        .digests(key, *contexts)
        .split()
    )


def _charged(
    path: Path, spending: Spending, names: Collection[str], sites: Collection[str], dataset_id: str
) -> Charged:
    key = key_of(path)
    # A run writes the policy's name of its data set; without one, names are under the empty name.
    datasets = {"", dataset_id, *(run.dataset for run in spending.runs)}
    digests = _digests(key, names, sites, datasets) if key else frozenset()
    told = sites or not names_the_site(spending, key)
    lacks = "" if told else "the folder of a finished run of this site"
    listed = [
        run
        for run in spending.runs
        if any(not digests.isdisjoint(person.split()) for person in run.people)
    ]
    return Charged(
        path=path,
        runs=len(spending.runs),
        listed=len(listed),
        cost=sum_up(run.cost for run in listed),
        delta=min((run.delta for run in listed), default=None),
        open_runs=tuple(run.run for run in listed if run.state == "held"),
        lacks=lacks if key else f"the key of the ledger, {path.name}.key",
    )
