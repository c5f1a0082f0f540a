"""Memory of a site in `join`: its largest subject, whatever their number (bench/memory.py: all).

Belongs to `cape/data/pipeline.py`.
"""

import os
import tracemalloc
from pathlib import Path

import pytest

from cape.engines.coinstac import computation as coinstac
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.site.places import SitePlaces
from support import consortium as helper

SETTINGS = {
    "computation": "capedjica", "epsilon": 8.0, "delta": 1e-5, "mask": "MNI152-10mm",
    "n_components": 3, "n_basis": 30,
    "min_sites": 2, "n_sites": 2, "tr": 2.0, "standardize": "demean",
}  # fmt: skip
MANY = 12


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("memory") / "data"
    write_consortium(folder, Request(preset="brain", site_sizes=(MANY, 1), n_timepoints=120))
    return folder / "local0"


def peak_of_join(folder: Path, images: Path, n_subjects: int) -> tuple[int, int]:
    """Return the bytes allocated at most while a site joins, and those of the reduced data."""
    state = {"clientId": "local0", "iteration": 1}
    for name in ("base", "output", "cache", "transfer"):
        state[f"{name}Directory"] = str(folder / name)
        (folder / name).mkdir(parents=True)
    # The longest first: the peak is that of the longest subject, which all sizes share then.
    by_size = sorted(images.glob("sub-*"), key=lambda file: -file.stat().st_size)
    for file in by_size[:n_subjects]:
        os.link(file, folder / "base" / file.name)
    policy = folder / "site-policy.toml"
    policy.write_text(helper.policy_text(helper.POLICY))
    tracemalloc.start()
    try:
        document = {"input": SETTINGS, "cache": {}, "state": state}
        answer = coinstac.run("local", document, SitePlaces(policy=policy))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer["output"]["body"]["n_subjects"] == n_subjects
    return peak, sum(path.stat().st_size for path in (folder / "cache").iterdir())


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_site_with_more_subjects_needs_no_more_memory_but_for_their_reduced_data(
    images, tmp_path, monkeypatch, jobs
) -> None:
    """Were subjects kept, the peak would grow by the voxels of nine: to more than its double.

    Several jobs hold a subject each, when they happen to meet.
    """
    monkeypatch.setenv("CAPE_JOBS", "1")
    peak_of_join(tmp_path / "warm", images, 2)  # imports, masks, public basis
    few, few_kept = peak_of_join(tmp_path / "few", images, 3)
    monkeypatch.setenv("CAPE_JOBS", str(jobs))
    many, many_kept = peak_of_join(tmp_path / "many", images, MANY)
    assert many_kept > 3 * few_kept  # the reduced data do grow
    assert many - few <= 2 * (many_kept - few_kept) + (jobs - 0.95) * few
    assert few > 10 * few_kept  # and a subject is far larger than what is kept of it
