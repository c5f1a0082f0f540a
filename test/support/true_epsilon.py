"""What one person is charged in truth, of the lines of a site's ledger: real files, real charges.

Every file of a person is tiny and unlike all others; the site reads them, writes its people and the
charges of a small run into its ledger, and only the ledger is asked.
"""

import gzip
import hashlib
import io
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.cifti2.cifti2_axes import BrainModelAxis, ParcelsAxis

from cape.privacy.accounting import gdp_epsilon
from cape.privacy.ledger import Budget, Ledger
from cape.protocol.messages import SiteCard
from cape.protocol.plan import make_plan
from cape.settings.config import Config
from cape.site.context import SiteContext
from cape.site.ledger_file import (
    DIGITS,
    LifetimeLedger,
    LifetimeLedgerFile,
    ListedPerson,
    read_ledger,
)
from cape.site.policy import SitePolicy
from cape.site.site_data import FileSource
from cape.site.store import MemoryStore
from test.support import surfaces
from test.support.tiny import SIZE, STAGES

N_TIMES = 24
NONCE = "0" * 32


@lru_cache(maxsize=1)
def _dense() -> BrainModelAxis:
    return surfaces.axis(1, voxels=False)


@lru_cache(maxsize=1)
def _parcels() -> ParcelsAxis:
    return surfaces.parcels(1, 2)


def write_series(path: Path, rng: np.random.Generator) -> None:
    """Write what the name says: a volume, surfaces, or a table of parcels."""
    if path.name.endswith((".dtseries.nii", ".ptseries.nii")):
        columns = _dense() if path.name.endswith(".dtseries.nii") else _parcels()
        surfaces.write_cifti(path, rng.standard_normal((len(columns), N_TIMES)), columns)
    elif path.name.endswith((".nii", ".nii.gz")):
        path.write_bytes(_volume(path.name, 100 + rng.standard_normal((2, 2, 2, N_TIMES))))
    elif path.suffix == ".mat":
        from scipy.io import savemat

        savemat(path, {"ROISignals": rng.standard_normal((N_TIMES, SIZE))})
    else:
        np.savetxt(path, rng.standard_normal((N_TIMES, SIZE)))


def _volume(name: str, values: np.ndarray) -> bytes:
    image = nib.Nifti1Image(values.astype(np.float32), np.diag([3.0, 3.0, 3.0, 1.0]))
    image.header.set_zooms((3.0, 3.0, 3.0, 2.0)[: values.ndim])
    image.set_sform(image.affine, 4)
    stream = io.BytesIO(image.to_bytes())
    return gzip.compress(stream.getvalue(), 1) if name.endswith(".gz") else stream.getvalue()


def write_space(base: Path, space: str) -> None:
    """Write what the owner sends: a mask or a structure."""
    if space == "mask":
        (base / "mask.nii.gz").write_bytes(_volume("mask.nii.gz", np.ones((2, 2, 2))))
    elif space != "matrix":
        surfaces.write_owner_files(base, _dense() if space == "grayordinates" else _parcels(), 1)


def charge(base: Path, config: Config, ledger: Path) -> None:
    """Join, plan and charge every release of a small run, as a site does."""
    # Pictures of eight voxels cover no mask: this is about whose they are.
    source = FileSource(base, {}, config, "B", stop_if_most_fail=False)
    file = LifetimeLedgerFile(path=ledger, site="B")
    runs = LifetimeLedger(file=file, dataset_id="", data=source)
    site = SiteContext(
        site="B", computation="tiny", config=config, policy=SitePolicy(min_subjects=1),
        open_source=lambda: source, store=MemoryStore("B"), all_runs=runs,
    )  # fmt: skip
    site.new_run()
    n_subjects = source.n_subjects
    site.admit(
        SiteCard(
            protocol=1, version="", computation="tiny", settings="", nonce=NONCE,
            n_subjects=n_subjects, space=source.space, noise="os",
        )
    )  # fmt: skip
    plan = make_plan(config, STAGES, n_sites=3, n_subjects=n_subjects)
    site.hold(plan, seeded=False)
    site.ledger = Ledger(budget=Budget.of(epsilon=config.epsilon, delta=config.delta))
    for event in plan:
        site.charge(event)


def true_epsilons(
    ledgers: Mapping[Path, Mapping[str, str]],
    files_of: Mapping[str, Collection[Path]],
    delta: float,
) -> dict[str, float]:
    """Return what each person's files cost: a person who is k subjects moves every sum k times."""
    # Group privacy of Gaussian mechanisms: k subjects of one person cost k mu.  `ledgers`: who is
    # meant by each name of a site, which is all that a ledger knows of unreadable files.
    of_files = {_known_by(path): who for who, paths in files_of.items() for path in paths}
    mu = dict.fromkeys(files_of, 0.0)
    for ledger, names in ledgers.items():
        key = bytes.fromhex(ledger.with_name(f"{ledger.name}.key").read_text())
        owner = of_files | {
            ListedPerson(label=name, files=()).digests(key, ("",)): who
            for name, who in names.items()
        }
        (run,) = read_ledger(ledger).runs
        assert run.charges
        assert run.promised
        for line in run.people:
            held = {owner[known] for known in line.split() if known in owner}
            assert held, "a subject of the ledger is nobody"
            for who in held:
                mu[who] += float(run.cost.mu())
    return {who: gdp_epsilon(mu=cost, delta=delta) for who, cost in mu.items()}


def _known_by(path: Path) -> str:
    """Return the digest that a ledger knows a file by."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashlib.sha256(digest.encode()).hexdigest()[:DIGITS]
