"""What `cape init` learns from the headers of runs: lengths, repetition times, confounds, grids."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

import numpy as np

from cape.counting import number_of
from cape.data.bids import confounds_beside
from cape.data.folders import PARTICIPANTS
from cape.data.images import header_alone
from cape.data.issues import Findings, UnusableFile
from cape.data.manifest import MANIFEST_NAMES
from cape.data.people import PeopleList
from cape.data.reading import has_nilearn
from cape.data.runs import Series, SiteRun
from cape.data.space import SCANNER_CODE, Grid, transform_code
from cape.data.tables import bounded, line_cells, table_lines
from cape.delimited import delimiter_of
from cape.errors import ConfigError

# Voxel sizes of bundled masks, mm; the first is the default.
BUNDLED: Final = (4, 6, 8, 10)
# Share of a mask's voxels that a grid of the whole brain must hold
WHOLE: Final = 0.9
# Shortest run, volumes, from which 24 signals of motion may be regressed out
LONG_RUN: Final = 100
# Runs named of those that are too short for that
_MOST_NAMED: Final = 3
# Components beyond what G allows are noise; a consortium needs more people than components.
MOST_COMPONENTS: Final = 20
MOTION: Final = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")

_T = TypeVar("_T")

Lists = Mapping[str, PeopleList]


def runs_of(people: PeopleList) -> list[SiteRun]:
    """Return the runs of all who take part."""
    return [run for person in people.listed for run in person.runs]


def range_of(sizes: Collection[int]) -> str:
    if not sizes:
        return "not known"
    return f"{min(sizes)}" if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"


def headers_of(
    lists: Lists, read: Callable[[SiteRun], Series], lines: list[str]
) -> dict[str, list[Series]]:
    """Return the headers of each site's runs that can be read; `lines` counts the others.

    ConfigError E018: none can.
    """
    findings = Findings("any")
    headers: dict[str, list[Series]] = {}
    for site, people in lists.items():
        headers[site] = []
        for run in runs_of(people):
            try:
                headers[site].append(read(run))
            except UnusableFile as verdict:
                findings.add_issue(verdict.issue, run.name)
            except OSError as err:
                lines.append(f"not readable: {run.name}: {err.strerror}")
    texts = [finding.private for finding in findings.listing()]
    if texts and not any(headers.values()):
        raise ConfigError("E018", problem="no file can be used", do=texts[0])
    lines += [f"not used by a run: {text}" for text in texts]
    return headers


# -- time and confounds --------------------------------------------------------------------------


def of_time(
    lists: Lists, series: Sequence[Series], lengths: Mapping[Path, int], lines: list[str]
) -> dict[str, object]:
    """Return the values of `tr` and `min_timepoints`; where times differ nobody is left out."""
    times = {round(each.tr, 3) for each in series} - {0.0}
    return {
        "min_timepoints": fewest(lists, lengths, lines),
        "tr": f"{times.pop():g}" if len(times) == 1 else "",
    }


def fewest(lists: Lists, lengths: Mapping[Path, int], lines: list[str]) -> int:
    """Return a `min_timepoints` for people shorter than its default; 0: keep the default.

    `lengths`: time points of the runs whose headers can be read; those of a person are joined.
    """
    everyone = [person for people in lists.values() for person in people.listed]
    joined = [sum(lengths.get(run.path, 0) for run in person.runs) for person in everyone]
    known = [n for n in joined if n]
    usual = median(known) if known else LONG_RUN
    least = int(0.9 * usual) // 10 * 10
    least = 0 if usual >= LONG_RUN or least < MOST_COMPONENTS + 2 else least  # too short for any
    if least:
        lines.append(f"time points of a person: {range_of(known)}, so min_timepoints = {least}")
    if short := [n for n in known if n < (least or LONG_RUN)]:
        lower = min(short) // 10 * 10
        line = f"; min_timepoints = {lower} counts them" if lower > MOST_COMPONENTS else ""
        lines.append(
            f"{len(short)} of {number_of(len(known), 'person')} would count as zeros: fewer than "
            f"{least or LONG_RUN} time points{line}"
        )
    return least


def of_confounds(lists: Lists, lengths: Mapping[Path, int], lines: list[str]) -> dict[str, object]:
    """Return what to regress out; a run that lacks it is named with the line that leaves it out.

    `lengths`: volumes of the runs whose headers can be read.
    """
    runs = [run for people in lists.values() for run in runs_of(people)]
    tables = {run.path: set(_columns(run.confounds)) for run in runs if run.confounds}
    usable = {path: names for path, names in tables.items() if names.issuperset(MOTION)}
    lines.append(f"confound tables: {len(tables)} of {number_of(len(runs), 'run')}")
    if not usable:
        return {"confound_strategy": "", "confounds": "none", "why_basic": ""}
    common = set.intersection(*usable.values())
    lines += _lacking(lists, {run.path for run in runs} - usable.keys())
    derived = {
        f"{name}{end}"
        for name in MOTION
        for end in ("_derivative1", "_power2", "_derivative1_power2")
    }
    why = "" if lengths else "no header says how long runs are"
    if short := [run for run in runs if lengths.get(run.path, LONG_RUN) < LONG_RUN]:
        # The file goes to all sites: which runs is said here alone.
        why = f"some runs have fewer than the {LONG_RUN} volumes that all 24 signals need"
        shown = ", ".join(run.name for run in short[:_MOST_NAMED])
        more = f" and {len(short) - _MOST_NAMED} more" if len(short) > _MOST_NAMED else ""
        n = f"{len(short)} of {number_of(len(runs), 'run')}"
        lines.append(
            f"motion of 6 signals and not 24, because {n} {'has' if len(short) == 1 else 'have'} "
            f"fewer than {LONG_RUN} volumes: {shown}{more}"
            + ("; init proposes 24 without them (exclude)" if 2 * len(short) < len(runs) else "")
        )
    elif not common >= derived:
        why = "some tables lack the derivatives and squares of the 6"
        lines.append(f"motion of 6 signals and not 24, because {why}")
    full = not why
    fmriprep = all(run.confounds in (None, confounds_beside(run.path)) for run in runs)
    if not (fmriprep and has_nilearn()):  # nilearn looks for tables by their names
        confounds = "motion24" if full else "motion6"
        return {"confound_strategy": "", "confounds": confounds, "why_basic": why}
    strategy = ["motion=full" if full else "motion=basic"]
    strategy += ["wm_csf=basic"] if common >= {"white_matter", "csf"} else []
    strategy += ["high_pass"] if any(name.startswith("cosine") for name in common) else []
    scrubbing = common >= {"framewise_displacement", "std_dvars"}
    joined = ",".join(strategy)
    return {"confound_strategy": joined, "scrubbing": scrubbing, "why_basic": why}


def _lacking(lists: Lists, without: Collection[Path]) -> Iterator[str]:
    """Yield a line about each person who lacks tables of motion: what leaves the runs out."""
    for people in lists.values():
        for person in people.listed:
            lacking = [run for run in person.runs if run.path in without]
            if not lacking:
                continue
            some = len(lacking) < len(person.runs)
            mark = f"column exclude of {PARTICIPANTS} for {person.label}"
            if people.source in MANIFEST_NAMES:
                some, mark = False, f"column exclude of its row in {people.source}"
            cell = ", ".join(run.mark for run in lacking) if some else "1"
            yield (
                f"{lacking[0].name} has no confound table with motion; to leave it out, write "
                f"{cell} into {mark}"
            )


def _columns(table: Path) -> Sequence[str]:
    try:
        return line_cells(table_lines(bounded(table), delimiter_of(table.name, "\t"))[0])
    except (UnusableFile, OSError):
        return ()


# -- grids ---------------------------------------------------------------------------------------


def told(path: Path, read: Callable[[Any], _T], otherwise: _T) -> _T:
    """Return what `read` finds in the header of an image, or `otherwise` if it is unreadable."""
    try:
        return read(header_alone(path))
    except Exception:  # from a library, for any damage; `cape validate` reports it
        return otherwise


def bundled_mask(images: Sequence[Path]) -> int:
    """Return the voxel size of the bundled mask for images, mm."""
    edges = [told(path, lambda header: float(max(header.get_zooms()[:3])), 0.0) for path in images]
    return next((mm for mm in BUNDLED if mm >= max(edges, default=0.0) - 0.5), BUNDLED[-1])


def resample_to(images: Sequence[Path], wanted: Grid) -> str | None:
    """Return the setting `resample` for images that share one grid which holds a mask or an atlas.

    None: they do not.  Images in native space have a grid per person, or a scanner's transform.
    """
    grids = {told(path, _grid, None) for path in images}
    grid = grids.pop() if len(grids) == 1 and len(images) > 1 else None
    if grid is None or grid[2] in (0, SCANNER_CODE):
        return None
    shape, affine = grid[0], np.reshape(grid[1], (4, 4))
    to_voxel = np.linalg.inv(affine) @ wanted.affine
    voxels = np.argwhere(wanted.inside) @ to_voxel[:3, :3].T + to_voxel[:3, 3]
    inside = np.all((voxels > -0.5) & (voxels < np.array(shape) - 0.5), axis=1)
    if inside.mean() < WHOLE:
        return None
    same = shape == wanted.shape and np.allclose(affine, wanted.affine, atol=1e-3)
    return "" if same else "to_mask"


def _grid(header: Any) -> tuple[tuple[int, ...], tuple[float, ...], int]:
    affine = tuple(float(x) for x in np.round(header.get_best_affine(), 3).ravel())
    return header.get_data_shape()[:3], affine, transform_code(header)
