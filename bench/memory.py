"""Peak memory of one site over its whole life: its largest subject, and the reduced data.

Plays whole runs, `join` to `report` with the pages of the site, over NIfTI files of which one
subject is far larger than all that is kept of it.  Every party is a new process in every round,
as in COINSTAC's first version, and says its peak when it ends.  The site is measured with 1, 2 and
4 times the subjects, and once more with its largest subject twice as long.  Its peak may grow with
the largest subject and by the reduced data that are added, and by nothing else; exit 1 if it does.

    python bench/memory.py --grid 4 --timepoints 300 --subjects 2 [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

COPIES = 2.0
"""Times that a round holds the reduced data: the subjects, and the array they are stacked into."""
SLACK = 1.1
"""The allocator's share of a peak."""
SITE, OTHER = "local0", "local1"
PEAKS = "CAPE_BENCH_PEAKS"
MB = 2**20


def peak_mb() -> float:
    """Return the peak resident memory of this process, MB; getrusage would count its parent."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this system does not tell the peak memory of a process")


def child(role: str) -> None:
    """Be ``local.py`` or ``remote.py``, and write down the peak at the end."""
    from cape.engines.coinstac.computation import answer_once as answer

    code = answer(role)
    with open(os.environ[PEAKS], "a", encoding="utf-8") as told:
        told.write(f"{peak_mb()}\n")
    raise SystemExit(code)


@dataclass
class Row:
    """What one consortium cost its first site, MB."""

    subjects: int
    voxels: float
    """Of all subjects, as float32 in the whole volume."""
    largest: float
    reduced: float
    phases: dict[str, float]
    """Peak of the site by phase."""
    allowed: float = 0.0

    @property
    def peak(self) -> float:
        """Of all processes of the site."""
        return max(self.phases.values())

    @property
    def above(self) -> float:
        """Above a process that has no data: the round of the keys."""
        return self.peak - self.phases["zero-sum"]


def played(folder: Path, sites: Mapping[str, Path], settings: dict[str, Any]) -> Row:
    """Play a run and return the figures of its first site."""
    import nibabel as nib
    import numpy as np

    from cape.simulation.run_loop import run_to_end
    from cape.simulation.transports import ActiveSites, DocumentTransport, NewProcess, make_places
    from cape.site.policy import SitePolicy

    work = folder / "work"
    make_places((*sites, "remote"), SitePolicy.of_simulation(private_results=True), work)
    peaks: dict[str, float] = {}
    reduced = 0.0

    class Measured(NewProcess):
        """Starts this file in place of the program of the party."""

        def __call__(self, role: str, party: str, text: bytes) -> bytes:
            nonlocal reduced
            told = folder / "peaks"
            told.unlink(missing_ok=True)
            policy = str(work / party / "site-policy.toml")
            done = subprocess.run(
                [sys.executable, __file__, "--child", role],
                input=text, capture_output=True, check=False,
                env={**os.environ, "CAPE_SITE_POLICY": policy, PEAKS: str(told)},
            )  # fmt: skip
            if done.returncode:
                sys.exit(done.stderr.decode()[-2000:])
            if party == SITE:
                asked = json.loads(text)["input"]
                phase = asked.get("phase", "join") if "body" in asked else "join"
                peaks[phase] = max(peaks.get(phase, 0.0), float(told.read_text()))
                kept = sum(p.stat().st_size for p in (work / SITE / "cache").rglob("*.arrays"))
                reduced = max(reduced, kept / MB)
            return done.stdout

    class OneByOne(DocumentTransport):
        """A party at a time: there is one file for the peak."""

        def _width(self) -> int:
            return 1

    link = OneByOne(
        sites, settings, work, Measured(sites, work), ActiveSites(list(sites), [], survives=False)
    )
    run_to_end(link, None)
    shapes = [nib.load(p).shape for p in sorted(sites[SITE].glob("sub-*.nii.gz"))]  # type: ignore[attr-defined]
    volumes = [int(np.prod(shape)) * 4 / MB for shape in shapes]
    return Row(subjects=len(volumes), voxels=sum(volumes), largest=max(volumes), reduced=reduced,
               phases=peaks)  # fmt: skip


def made(folder: Path, asked: argparse.Namespace) -> Path:
    """Write the data: four times the subjects, and one of them twice as long."""
    import nibabel as nib
    import numpy as np

    from cape.lab.synthetic.consortium import Request, write_consortium

    write_consortium(
        folder / "made",
        Request(
            preset="brain",
            site_sizes=(4 * asked.subjects, 2),
            grid_mm=asked.grid,
            n_timepoints=asked.timepoints,
            n_networks=6,
            tr=2.0,
            seed=0,
        ),
    )
    first, second = sorted((folder / "made" / SITE).glob("sub-*.nii.gz"))[:2]
    one, two = nib.load(first), nib.load(second)
    both = np.concatenate([np.asanyarray(one.dataobj), np.asanyarray(two.dataobj)], axis=3)
    long = nib.Nifti1Image(both.astype(np.float32), one.affine, one.header)
    long.header.set_data_dtype(np.int16)
    long.header.set_slope_inter(0.1, 0.0)
    (folder / "long").mkdir()
    nib.save(long, folder / "long" / first.name)
    return folder / "made"


def site_of(folder: Path, source: Path, n_subjects: int, long: Path | None = None) -> Path:
    """Return a site with the first subjects, or with a longer first one; files are linked."""
    folder.mkdir(parents=True)
    for file in sorted(source.iterdir()):
        if file.name.startswith("sub-") and int(file.name[4:].split("_")[0]) > n_subjects:
            continue
        longer = None if long is None else long / file.name
        os.link(longer if longer is not None and longer.exists() else file, folder / file.name)
    return folder


def rows_of(folder: Path, asked: argparse.Namespace) -> list[Row]:
    """Return the figures with 1, 2 and 4 times the subjects, and with a longer one."""
    source = made(folder, asked)
    settings: dict[str, Any] = {
        "epsilon": 8.0, "delta": 1e-5, "mask": f"MNI152-{asked.grid}mm", "n_components": 3,
        "n_basis": asked.basis, "n_sites": 2, "min_sites": 2, "tr": 2.0, "standardize": "demean",
        "n_rounds": 1, "n_looks": 1, "accept_low_quality": True,
    }  # fmt: skip
    rows = []
    times = (1,) if asked.quick else (1, 2, 4)
    plans = [(f"x{k}", k * asked.subjects, None) for k in times]
    for name, n_subjects, long in (*plans, ("long", asked.subjects, folder / "long")):
        place = folder / name
        site = site_of(place / SITE, source / SITE, n_subjects, long)
        rows.append(played(place, {SITE: site, OTHER: source / OTHER}, settings))
    first = rows[0]
    for row in rows:
        added = COPIES * (row.reduced - first.reduced)
        row.allowed = SLACK * (first.above * row.largest / first.largest + added)
    return rows


def main() -> None:
    """Make the data, measure, print ratios; exit 1 if memory grows with the number of subjects."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grid", type=int, default=4)
    parser.add_argument("--timepoints", type=int, default=300)
    parser.add_argument("--subjects", type=int, default=2)
    parser.add_argument("--basis", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="10 mm, 60 volumes: no verdict")
    parser.add_argument("--child", choices=("local", "remote"))
    asked = parser.parse_args()
    if asked.quick:
        asked.grid, asked.timepoints, asked.subjects, asked.basis = 10, 60, 1, 100
    if asked.child:
        child(asked.child)
        return
    with tempfile.TemporaryDirectory() as name:
        rows = rows_of(Path(name), asked)
    if asked.json:
        print(json.dumps({"rows": [{**asdict(r), "peak": r.peak, "above": r.above} for r in rows]}))
    else:
        show(rows)
    grown = [row.subjects for row in rows if row.above > row.allowed]
    if grown and not asked.quick:  # small data vanish beside what a process is
        sys.exit(f"memory grows with the number of subjects: {grown}")


def show(rows: list[Row]) -> None:
    """Print a table of all runs, and the peaks by phase."""
    print("MB: subjects  largest  voxels of all  reduced  peak  above base  allowed  ratio")
    for row in rows:
        print(f"{row.subjects:12d} {row.largest:8.0f} {row.voxels:14.0f} {row.reduced:8.1f} "
              f"{row.peak:5.0f} {row.above:11.0f} {row.allowed:8.0f} "
              f"{row.above / rows[0].above:6.2f}")  # fmt: skip
    for phase in rows[0].phases:
        print(f"{phase:14s}", *(f"{row.phases[phase]:7.0f}" for row in rows))


if __name__ == "__main__":
    main()
