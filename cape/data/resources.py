"""Memory and disk that a site needs, from public numbers and the lengths of its series."""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cape.data.checks import Subject
from cape.data.issues import Findings, IssueCode
from cape.frozen import dataclass
from cape.settings.resolved import Resolved
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import basis_memory

# Bytes of Python with numpy, scipy and nibabel loaded.
BASE_MEMORY: Final = 120_000_000

# Volumes of a run that are transposed at a time, in doubles and as stored.
VOLUMES: Final = 32

MEMINFO: Final = Path("/proc/meminfo")
OWN_GROUPS: Final = Path("/proc/self/cgroup")
GROUPS_FOLDER: Final = Path("/sys/fs/cgroup")
# MiB of a job on a node, or of each of its processors
SLURM_MEMORY: Final = ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE")


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceEstimate:
    """Memory at one time and disk of the run, needed and free, bytes; 0 free: not known."""

    memory: int
    disk: int
    free_memory: int
    free_disk: int


def largest_bytes(subject: Subject | None) -> int:
    """Return the bytes that a subject takes while it is read; a run is cleaned in place."""
    if subject is None:
        return 0
    # Several runs are held once more while they are joined.
    n_times = subject.n_timepoints * min(len(subject.runs), 2) + VOLUMES
    return 4 * subject.n_features * n_times


def jobs(n_bytes: int) -> int:
    """Return how many subjects of `n_bytes` are read at a time.

    `CAPE_JOBS`, or all processors; fewer if half of the free memory would not hold them.
    """
    wanted = os.environ.get("CAPE_JOBS", "")
    n_jobs = int(wanted) if wanted.isdecimal() else processors()
    free = free_memory()
    if free and n_bytes:
        n_jobs = min(n_jobs, free // (2 * n_bytes))
    return max(1, n_jobs)


def processors() -> int:
    # Those that this process may use, if the system says so.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def estimate_resources(
    subjects: Sequence[Subject],
    space: FeatureSpace,
    n_basis: int,
    working: Path | None,
    how: Resolved,
) -> ResourceEstimate:
    """Return what a run needs."""
    largest = max(map(largest_bytes, subjects), default=0)
    largest *= min(jobs(largest), len(subjects))
    basis = basis_memory(how, space, n_basis)
    in_basis = 4 * n_basis * sum(subject.n_timepoints for subject in subjects)
    return ResourceEstimate(
        memory=BASE_MEMORY + basis + largest + 2 * in_basis,
        disk=3 * in_basis,  # in the basis, in the subspace, whitened
        free_memory=free_memory(),
        free_disk=free_disk(working) if working is not None else 0,
    )


def check_room(needs: ResourceEstimate, findings: Findings) -> None:
    """Note too little memory or disk: a run that breaks off has spent its budget."""
    for what, needed, free in (
        ("memory", needs.memory, needs.free_memory),
        ("disk space for working files", needs.disk, needs.free_disk),
    ):
        if 0 < free < needed:
            place = f"{needed / 1e6:.0f} MB needed, {free / 1e6:.0f} MB free"
            findings.add(IssueCode.NO_ROOM, place, what=what, needed=needed / 1e6)


def free_memory() -> int:
    """Return bytes that a new process may use, 0 if that is not known.

    The minimum over the computer, the control groups of this process (a container, a job of a
    cluster), and SLURM's limit of the job.
    """
    fields = (line.split() for line in _lines(MEMINFO) if line.startswith("MemAvailable:"))
    of_computer = (int(number) * 1024 for _, number, *_ in fields)
    free = (*of_computer, *_free_of_groups(), _given_by_slurm())
    return min((n for n in free if n > 0), default=0)


def _free_of_groups() -> Iterator[int]:
    """Yield the free bytes of each control group (version 2) above this process."""
    top = GROUPS_FOLDER
    own = (line.removeprefix("0::/") for line in _lines(OWN_GROUPS) if line.startswith("0::/"))
    for group in (top / place for place in own):
        # A container sees its own group as the top, whatever path the system states.
        for folder in (group, *group.parents) if top in group.parents or group == top else (top,):
            limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
            if limit is not None and used is not None:
                # Cached files are dropped when memory is needed.
                stat = dict(s.split(" ", 1) for s in _lines(folder / "memory.stat") if " " in s)
                yield max(1, limit - used + int(stat.get("inactive_file", 0)))
            if folder == top:
                break


def _number(path: Path) -> int | None:
    # "max" means no limit, a missing file no such group.
    text = "".join(_lines(path))
    return int(text) if text.isdecimal() else None


def _given_by_slurm() -> int:
    # A cluster may end jobs above their limit without a control group.
    whole, each, cpus = (os.environ.get(name, "") for name in SLURM_MEMORY)
    if whole.isdecimal():
        return int(whole) * 2**20
    return int(each) * int(cpus or 1) * 2**20 if each.isdecimal() and f"1{cpus}".isdecimal() else 0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return []


def free_disk(folder: Path) -> int:
    """Return free bytes on the disk of a folder that may not exist yet, 0 if not known."""
    # A folder that does not exist yet will be on the disk of its nearest parent.
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free if os.access(folder, os.W_OK) else 0
    except OSError:
        return 0
