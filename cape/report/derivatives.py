"""Time courses (run by run) and maps of single people as BIDS derivatives."""

import re
import shutil
from collections.abc import Collection, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Final

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.errors import CapeError
from cape.frozen import dataclass
from cape.report import files
from cape.settings.config import VERSION

BIDS: Final = "1.10.0"
FOLDER: Final = "func"
# Suffixes of time courses and maps, after the name of the person or run
COURSES: Final = "desc-cape_timeseries"
MAPS: Final = "desc-cape_stat-z_statmap"
DESCRIPTION: Final = "dataset_description.json"
DATASET_NAME: Final = "Time courses and maps of the people of one site"
COURSE_COLUMNS: Final = {
    "volume": {"Description": "Number of the volume in the file it was read from, from 0"},
    "time": {"Description": "Volume times repetition time", "Units": "s"},
    "censored": {
        "Description": "Whether the volume was left out and has no values",
        "Levels": {"0": "used", "1": "dummy, scrubbed, or beyond max_timepoints"},
    },
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """One run of a person, as in its file."""

    session: str = ""  # "ses-1"
    entities: str = ""  # other BIDS entities that tell runs apart: "task-rest_run-1"
    tr: float = 0.0  # s, 0 if unknown
    n_volumes: int
    left_out: tuple[int, ...] = ()  # volumes, from 0, without values in time courses


def begin_dataset(folder: Path) -> None:
    """Describe the data set; delete the people of an earlier run."""
    for old in folder.glob("sub-*"):
        shutil.rmtree(old)
    about = {
        "Name": DATASET_NAME,
        "BIDSVersion": BIDS,
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "coinstac-cape", "Version": VERSION}],
    }
    # First of all files and as a whole: by it a folder is known whose writer was killed.
    partial = folder / f"{DESCRIPTION}.partial"
    files.write_json(partial, about)
    partial.replace(folder / DESCRIPTION)
    files.write_json(folder / f"{COURSES}.json", COURSE_COLUMNS)
    # Names that BIDS validators do not know: tables of all people, the page, derivatives
    ignored = "/*.tsv /*.jsonl /*.md /*.html /[ls]*.json *_timeseries.* *_statmap.*"
    files.write_text(folder / ".bidsignore", "".join(f"{name}\n" for name in ignored.split()))


def is_dataset(folder: Path) -> bool:
    """Tell whether `begin_dataset` has described this folder."""
    path = folder / DESCRIPTION
    try:
        return files.read_json(path).get("Name") == DATASET_NAME
    except (OSError, ValueError, TypeError, CapeError):
        return False


def stem_of(label: str, taken: Collection[str]) -> str:
    """Return ``sub-<label>`` in letters and digits as BIDS demands, numbered if it is taken."""
    # Labels come from file names and tables of the site: "../x" must not leave the folder.
    bare = re.sub(r"[^A-Za-z0-9]+", "", label.replace("sub-", "")) or "unnamed"
    numbered = (f"sub-{bare}n{number}" for number in count(2))
    return next(name for name in chain((f"sub-{bare}",), numbered) if name not in taken)


def write_courses(
    folder: Path, stem: str, names: Sequence[str], courses: Data, runs: Sequence[RunFacts]
) -> None:
    """Write the time courses (k, T_m) of a person: a table per run, a row per volume."""
    # Data without files count as one run.
    runs = runs or (RunFacts(n_volumes=courses.shape[1]),)
    columns, empty = iter(courses.T), [files.EMPTY_CELL] * len(names)
    for run in runs:
        out, rows = set(run.left_out), []
        for volume in range(run.n_volumes):
            # Volumes beyond max_timepoints have no values.
            values = None if volume in out else next(columns, None)
            time = files.cell(volume * run.tr if run.tr else None)
            cells = empty if values is None else [format(x, ".7g") for x in values.tolist()]
            rows.append((str(volume), time, str(int(values is None)), *cells))
        name = "_".join(filter(None, (stem, run.session, run.entities, COURSES)))
        place = folder_of(folder, stem, run.session)
        place.mkdir(parents=True, exist_ok=True)
        files.write_table(place / f"{name}.tsv", (*COURSE_COLUMNS, *names), rows)


def folder_of(folder: Path, stem: str, session: str = "") -> Path:
    return folder / stem / session / FOLDER


def read_courses(folder: Path, stem: str, names: Sequence[str]) -> Array:
    """Return the time courses (k, T) of a person, runs one after the other."""
    tables = (folder / stem).rglob(f"*_{COURSES}.tsv")
    rows = [
        [float(row[name]) for name in names]
        for path in sorted(tables, key=lambda path: _natural(str(path.relative_to(folder))))
        for row in files.read_table(path)
        if row["censored"] == "0"
    ]
    return np.array(rows).T


def _natural(name: str) -> list[str | int]:
    return [int(part) if k % 2 else part for k, part in enumerate(re.split(r"(\d+)", name))]
