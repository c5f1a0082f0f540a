"""What a site keeps of one person in its working folders, and its removal.

Deleted is what was made of the person's data: entries of the data store, time courses, maps and
rows of tables in private folders, lines of notes, arrays and journals of runs that cannot go on.
A private folder whose writer was killed, the working folder of a simulation that was, and notes
without a private folder go as a whole: nothing tells whose all of it is, and a run that goes on
makes them again.  The
ledger of all runs is only read: what was spent stays spent, or a person who comes back would begin
a new account.

Every step can be repeated, and what says whose files are is the last of its folder to change:
after an interruption the same command does the rest.
"""

import contextlib
import functools
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cape.array_file import read_note
from cape.counting import number_of
from cape.data.data_store import DataStore
from cape.data.folders import sites_below
from cape.data.names import bare, likeness
from cape.errors import StateLostError
from cape.frozen import dataclass
from cape.privacy.cost import FREE, Cost
from cape.privacy.holds import may_return
from cape.privacy.spending import RunSpending, Spending, sum_up
from cape.report import files, rebuild
from cape.report.derivatives import DESCRIPTION, is_dataset
from cape.report.private_folder import PEOPLE_TABLE, PRIVATE, SITE_JSON, SUBJECT_TABLE, keep_private
from cape.site.files import folder_lock, is_locked, write_atomically
from cape.site.ledger_file import LEDGER_NAME, ListedPerson, key_of, lost_key, read_ledger
from cape.site.ledger_texts import SHOWN_DIGITS, command
from cape.site.places import BEGUN, HOME, IN_PLACE, SETUP_FILE, STATE, WORK
from cape.site.policy import NO_LEDGER
from cape.site.store import FileStore, JoinRecord

_NOTES: Final = ("site-error.txt", "site-notice.txt")
_UNTOLD: Final = "findings by file, and no table tells whose the files are"
# With those that a killed process left half written
_ARRAYS: Final = "cape-*.arrays*"
_JOURNAL: Final = ".cape"
_OF_RUN: Final = "cape-site.json"
RESULTS_FILE: Final = "results.json"
# Where a simulation puts them, beside the folders of its sites
_COMMON: Final = "consortium"
# What a simulation's working folder is known by, also one that is half deleted: never by names that
# other programs use as well
_IN_WORK: Final = (
    *(f"{BEGUN}*", f"{STATE}*", "*/output/.cape", "*/output/cape-*", "*/output/private"),
    *("*/cache/cape-*", "replaced/*/private", "replaced/*/cape-*"),
)
BUSY: Final = "a run computes here now; type this again later"
NOISELESS: Final = (
    "sums of a run without noise, or whose noise anybody can draw again: beside those of a run "
    "without this person they tell what the person has; delete this folder if the person was in it"
)
UNKNOWN: Final = (
    "no ledger here knows its run, which may go on: name the ledger with --file; without one, "
    "delete this folder if the run does not go on; then type this again"
)
TO_END: Final = "its results only have to be put in place: type the same cape simulate, then this"
# Folders above one of a run that its process may have locked: output, site or run, simulation
_LOCKABLE: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """One place that holds something made of a person's data."""

    path: Path
    what: str
    remove: Callable[[], object]
    is_of_all: bool = False  # whoever the person is


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
    open_runs: tuple[str, ...]  # names of those that hold a plan
    # Names of those, of runs that charged, whose results are below none of the folders
    elsewhere: tuple[str, ...] = ()
    told_of: int = 0  # reasons of people of the site that name the person
    damaged: str = ""  # why the ledger cannot be read


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
    data: Path | None = None,
) -> Traces:
    """Find what is kept of a person, below `folders`, in a store and in ledgers.

    `store` and `ledgers` are the site's own; others that lie below `folders` are found.
    `dataset_id` is that of the site's policy, beside those that the ledger names.  `data`: the
    site's images, or those of all sites of a simulation; like finished runs they tell the names of
    sites, without which a simulation's people are not recognised in its ledger.
    """
    label = bare(person)
    below = [Path(at) for folder in folders for at, _, _ in os.walk(folder)]
    private = [at for at in below if at.name == PRIVATE and (_is_whole(at) or is_dataset(at))]
    whole = [at for at in private if _is_whole(at)]
    labels = {row["label"] for at in whole for row in files.read_table(at / SUBJECT_TABLE)}
    own = {text for text in labels if bare(text) == label}
    # A number alone is in dates as well.
    typed = {person.strip()} if re.search(r"[^\W\d_]", person) else set()
    of_files = {name for at in whole for name in _files_of(at, label)}
    named = _names({*own, *typed, f"sub-{label}", *of_files})
    homes = [at for at in below if at.name == HOME]
    journals = [_journal(at) for at in below if at.name == _JOURNAL]
    known = (*ledgers, *(at / LEDGER_NAME for at in homes), *_named_by(journals))
    spending, damaged = _read_all({path.resolve() for path in known})
    runs = {run.run: (run, path) for path, each in spending.items() for run in each.runs}
    removals, stays = _of_works(below, journals, runs)
    gone = [removal.path for removal in removals]
    left = [at for at in below if not any(at.is_relative_to(each) for each in gone)]
    of_journals, open_journals = _of_journals((j for j in journals if j.path in left), runs)
    of_runs = [*removals, *_of_arrays(left), *of_journals]
    stays += [*open_journals, *(Stays(path=at, why=NOISELESS) for at in left if _is_exact(at))]
    of_person: list[Removal] = []
    for at in (at for at in private if at in left):
        if _is_busy(at):
            stays.append(Stays(path=at, why=BUSY))
        else:
            of_person += _of_private(at, label) if at in whole else _of_killed(at)
    for at in left:
        of_person += _of_notes(at, named)
    for at in dict.fromkeys(filter(None, (store, *(home / "data" for home in homes)))):
        of_person += _of_store(at, label)
    # Written by every run, also where nothing about single people is
    finished = [at for at in below if (at / _OF_RUN).is_file()]
    sites = {str(files.read_json(at / _OF_RUN).get("site")) for at in finished}
    if data is not None:
        sites |= {data.resolve().name, *sites_below(data)}
    charged = [
        _charged(
            path,
            each,
            own | {label, f"sub-{label}"},
            # A run that was stopped tells them by its folders only.
            sites | {at.name for at in below},
            dataset_id,
            named,
            is_told=bool(sites),
            here=_runs_here(below, finished, journals),
        )
        for path, each in spending.items()
    ]
    charged += damaged
    alike = {text for text in labels - own if likeness(bare(text)) == likeness(label)}
    by_name = [each for each in of_person if not each.is_of_all]
    # A ledger recognises labels that look alike: there 50 may be the 050 of a folder.
    is_known = own or by_name or (not alike and any(each.listed for each in charged))
    return Traces(
        label=label,
        is_known=bool(is_known or _is_told(below, private, label, named)),
        removals=(*of_runs, *of_person),
        stays=tuple(stays),
        charged=tuple(charged),
        alike=tuple(sorted(alike)),
    )


def _results(at: Path) -> Mapping[str, Any]:
    with contextlib.suppress(OSError, ValueError, TypeError):  # of another program
        return dict(files.read_json(at / RESULTS_FILE))
    return {}


def _is_exact(at: Path) -> bool:
    """Tell whether a folder holds results without noise."""
    return _results(at).get("private") is False


def _is_busy(at: Path) -> bool:
    return any(is_locked(folder) for folder in at.parents[:_LOCKABLE])


def _is_told(
    below: Sequence[Path], private: Sequence[Path], label: str, named: re.Pattern[str]
) -> bool:
    """Tell whether files of runs that are not whole name the person."""
    names = (path for at in private for path in at.glob("sub-*"))
    marks = (f"{BEGUN}*", "given.json*", *_NOTES)
    texts = (path for at in below for mark in marks for path in at.glob(mark))
    notes = (read_note(path) for at in below for path in at.glob(_ARRAYS))
    stacks = (stack for note in notes if isinstance(note, list) for stack in note)
    return (
        any(bare(path.name) == label for path in names)
        or any(bare(str(text)) == label for stack in stacks for text in stack)
        or any(path.is_file() and named.search(_text(path)) for path in texts)
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


# -- private folders -----------------------------------------------------------------------------


def _is_whole(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (SUBJECT_TABLE, SITE_JSON))


def _of_killed(folder: Path) -> Iterator[Removal]:
    """Yield a private folder whose writer was killed, before it wrote down whose files are."""
    what = "results about all people of a run that was killed while it wrote them; if it goes on, "
    what += "it writes them again"

    def remove() -> None:
        # By the description the folder is known, so it goes last.
        for path in sorted(folder.iterdir(), key=lambda path: path.name == DESCRIPTION):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        folder.rmdir()

    yield Removal(path=folder, what=what, remove=remove, is_of_all=True)


def _files_of(folder: Path, label: str) -> set[str]:
    """Return the names of a person's files, without folders only if no other's is called so."""
    mine, others = set[str](), set[str]()
    for row in files.read_table(folder / SUBJECT_TABLE):
        (mine if bare(row["label"]) == label else others).update(row["files"].split("; "))
    return mine | {Path(name).name for name in mine} - {Path(name).name for name in others}


def _of_private(folder: Path, label: str) -> Iterator[Removal]:
    """Yield what a private folder holds of a person; a missing page is made again."""
    rows = [r for r in files.read_table(folder / SUBJECT_TABLE) if bare(r["label"]) == label]
    stems = {row["subject"] for row in rows} - {files.EMPTY_CELL}
    named = _names({*(row["label"] for row in rows), *_files_of(folder, label), *stems})
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
    what = "index.html is made again"
    if tables or own:
        what = f"rows of {number_of(len(tables), 'table')}; {what}"
        what = f"{number_of(files_of, 'file')} of time courses and maps, {what}"

    def remove() -> None:
        # The page first: it shows people, and its absence tells that the rest is not done.
        (folder / "index.html").unlink(missing_ok=True)
        for at in own:
            shutil.rmtree(at)
        for path in folder.glob("*.partial"):
            path.unlink()
        for path, kept in tables.items():
            _write_table(path, kept)
        rebuild(folder)
        keep_private(folder)

    yield Removal(path=folder, what=what, remove=remove, is_of_all=not (tables or own))


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
        lines = _text(path).splitlines(keepends=True)
        kept, why = _kept(lines, named, is_told=_tells_whose(folder / PRIVATE, path))
        if why:
            yield _rewriting(path, "".join(kept).encode(), why, is_of_all=why == _UNTOLD)
    for path in (folder / f"{name}.partial" for name in (*_NOTES, SETUP_FILE)):
        if path.is_file():
            what, is_of_all = (
                "what a killed process left half written",
                not named.search(_text(path)),
            )
            remove = functools.partial(path.unlink, True)
            yield Removal(path=path, what=what, remove=remove, is_of_all=is_of_all)
    path = folder / SETUP_FILE
    setup = files.read_json(path) if path.is_file() else {}
    if isinstance(notices := setup.get("notices"), dict):
        told = {
            site: _kept(lines, named, is_told=_is_whole(folder / site / PRIVATE))
            for site, lines in notices.items()
        }
        if whys := {why for _, why in told.values() if why}:
            left = {site: kept for site, (kept, _) in told.items()}
            text = json.dumps({**setup, "notices": left}, allow_nan=False, indent=1).encode()
            yield _rewriting(path, text, "; ".join(sorted(whys)), is_of_all=whys == {_UNTOLD})


def _tells_whose(private: Path, note: Path) -> bool:
    """Whether a private folder tells whose the files in a note are: its run wrote it later."""
    return _is_whole(private) and (private / SITE_JSON).stat().st_mtime_ns > note.stat().st_mtime_ns


def _kept(lines: Sequence[str], named: re.Pattern[str], *, is_told: bool) -> tuple[list[str], str]:
    """Return the lines of a note that stay, and why others go; the first one names no file.

    Unless `is_told` whose the files are, every other line may name one of the person's.
    """
    others = [line for line in lines if not named.search(line)]
    kept = others if is_told else [line for line in lines[:1] if line in others]
    if n := len(lines) - len(others):
        return kept, f"{number_of(n, 'line')} that name{'s' * (n == 1)} the person"
    return kept, _UNTOLD if len(kept) < len(lines) else ""


def _rewriting(path: Path, text: bytes, what: str, *, is_of_all: bool) -> Removal:
    def rewrite() -> None:
        before = path.stat()
        write_atomically(path, text)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # for `_tells_whose`

    return Removal(path=path, what=what, remove=rewrite, is_of_all=is_of_all)


def _of_store(folder: Path, label: str) -> Iterator[Removal]:
    store = DataStore.open(folder) if folder.is_dir() else None
    if store is not None and (entries := store.size(label)[0]):
        # Of a label, in all studies: copies, which may lie under other folders than today's files
        what = f"{number_of(entries, 'entry')} of the data store: copies of everybody called "
        what += f"{label}, or of unknown people, in all studies; they are read again when needed"
        yield Removal(path=folder, what=what, remove=functools.partial(store.clear, label))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Journal:
    """The journal of a run, and what it recorded in `join`: None if it is gone or damaged."""

    path: Path
    nonces: tuple[str, ...]
    record: JoinRecord | None


_Runs = Mapping[str, tuple[RunSpending, Path]]  # by nonce, with their ledgers


def _journal(at: Path) -> _Journal:
    nonces, record = tuple(sorted(path.name for path in at.iterdir() if path.is_dir())), None
    for nonce in nonces:
        store = FileStore(at.parent, at.parent, "")
        store.resume(nonce, b"", 1)
        with contextlib.suppress(StateLostError):
            record = store.read_join()
    return _Journal(path=at, nonces=nonces, record=record)


def _runs_here(
    below: Sequence[Path], finished: Sequence[Path], journals: Sequence[_Journal]
) -> set[str]:
    """Return names of the runs of which a site's folder is here; common results have no people."""
    of_sites = {*finished, *(at.parent / _COMMON for at in finished)}
    names = {str(_results(at).get("run")) for at in below if at in of_sites}
    return names | {nonce for journal in journals for nonce in journal.nonces}


def _named_by(journals: Sequence[_Journal]) -> Iterator[Path]:
    """Yield where the ledgers of these runs may be."""
    for journal in journals:
        yield from (at / HOME / LEDGER_NAME for at in journal.path.parents[1:_LOCKABLE])
        if journal.record is not None and journal.record.policy_at_join.ledger_file:
            named = Path(journal.record.policy_at_join.ledger_file)
            yield from (named,) * named.is_absolute()


def _why_it_stays(journal: _Journal, runs: _Runs) -> str:
    """Return why a journal is kept; empty if its run cannot go on."""
    listed = [runs[nonce] for nonce in journal.nonces if nonce in runs]
    for run, path in listed:
        if may_return(run):
            do = command("close", run.shown[:SHOWN_DIGITS], path)
            return f"its run may go on, with this person; close it, then type this again: {do}"
    # A damaged record ends its run as well.
    if listed or journal.record is None or journal.record.policy_at_join.ledger_file == NO_LEDGER:
        return ""
    return UNKNOWN


def _of_journals(journals: Iterable[_Journal], runs: _Runs) -> tuple[list[Removal], list[Stays]]:
    removals, stays = [], []
    for journal in journals:
        at = journal.path
        if why := BUSY if _is_busy(at) else _why_it_stays(journal, runs):
            stays.append(Stays(path=at, why=why))
        else:
            ended = any(nonce in runs for nonce in journal.nonces)
            what = f"the journal of a run that {'has ended' if ended else 'then cannot go on'}"
            removals.append(_of_all(at, what, functools.partial(_clear, at)))
    return removals, stays


def _of_works(
    below: Sequence[Path], journals: Sequence[_Journal], runs: _Runs
) -> tuple[list[Removal], list[Stays]]:
    """Return the working folders of simulations that were stopped."""
    removals, stays = [], []
    for at in below:
        if at.name != WORK or not any(found for mark in _IN_WORK for found in at.glob(mark)):
            continue
        inside = [each for each in journals if each.path.is_relative_to(at)]
        if is_locked(at):
            stays.append(Stays(path=at, why=BUSY))
        elif (at / STATE).is_file() and _text(at / STATE).startswith(f'{{"{IN_PLACE}":'):
            stays.append(Stays(path=at, why=TO_END))
        elif not any(_why_it_stays(each, runs) for each in inside):
            what = "all of a simulation that was stopped, and then begins anew"
            removals.append(_of_all(at, what, functools.partial(_clear_work, at)))
    return removals, stays


def _of_arrays(below: Sequence[Path]) -> Iterator[Removal]:
    what = "reduced data of all people of a run, which a run that goes on reads again"

    def remove(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.with_suffix(".seen").unlink(missing_ok=True)

    for path in (path for at in below for path in sorted(at.glob(_ARRAYS))):
        yield _of_all(path, what, functools.partial(remove, path))


def _of_all(path: Path, what: str, remove: Callable[[], object]) -> Removal:
    return Removal(path=path, what=what, remove=remove, is_of_all=True)


def _clear_work(work: Path) -> None:
    with folder_lock(work, "this results folder", patience=0.0):
        shutil.rmtree(work)


def _clear(journal: Path) -> None:
    with folder_lock(journal.parent, "this folder", patience=0.0):
        FileStore(journal.parent, journal.parent, "").clear()


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


def _read_all(paths: Collection[Path]) -> tuple[dict[Path, Spending], list[Charged]]:
    """Return what is in ledgers, and those that cannot be read: files are deleted all the same."""
    spending, damaged = {}, []
    for path in sorted(paths):
        try:
            spending[path] = read_ledger(path)
        except FileNotFoundError:
            continue
        except StateLostError as err:
            none: dict[str, Any] = {"runs": 0, "listed": 0, "cost": FREE, "delta": None}
            none |= {"lacks": "", "open_runs": ()}
            damaged.append(Charged(path=path, damaged=err.public, **none))
    return spending, damaged


def _charged(
    path: Path,
    spending: Spending,
    names: Collection[str],
    sites: Collection[str],
    dataset_id: str,
    named: re.Pattern[str],
    *,
    is_told: bool,
    here: Collection[str],
) -> Charged:
    key = key_of(path)
    # A run writes the policy's name of its data set; without one, names are under the empty name.
    datasets = {"", dataset_id, *(run.dataset for run in spending.runs)}
    digests = _digests(key, names, sites, datasets) if key else frozenset()
    listed = [
        run
        for run in spending.runs
        if any(not digests.isdisjoint(person.split()) for person in run.people)
    ]
    # A ledger does not say whether names of people are under those of sites, as in simulations.
    is_told = bool(listed) or is_told or not spending.runs
    lacks = "" if is_told else "the site's name: name a folder of its results, or --data"
    lost = lost_key(path, spending)
    reasons = [run.why for run in spending.runs] + [one.text for one in spending.forgiven]
    return Charged(
        path=path,
        runs=len(spending.runs),
        listed=len(listed),
        cost=sum_up(run.cost for run in listed),
        delta=min((run.delta for run in listed), default=None),
        open_runs=tuple(run.shown for run in listed if run.state == "held"),
        elsewhere=tuple(
            dict.fromkeys(
                run.shown for run in listed if run.charges and not {run.run, run.name} & {*here}
            )
        ),
        lacks=f"the key of the ledger: {path.name}.key {lost}" if lost else lacks,
        told_of=sum(bool(named.search(text)) for text in reasons),
    )
