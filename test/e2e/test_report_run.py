"""A whole run over files with canaries: the consortium's files hold nothing of single subjects."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from cape.report import files
from support.simulation import simulate

CANARY = "CANARY0815"


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """Return the results of three sites whose subjects' labels are canaries."""
    root = tmp_path_factory.mktemp("canaries")
    data = root / "data"
    rng = np.random.default_rng(7)
    mixing = rng.standard_normal((30, 3)) ** 3
    for site, count in (("local0", 3), ("local1", 4), ("local2", 3)):
        (data / site).mkdir(parents=True)
        for m in range(count):
            sources = rng.laplace(size=(3, 60))
            values = mixing @ sources + 0.1 * rng.standard_normal((30, 60))
            np.save(data / site / f"sub-{CANARY}{site}{m}_bold.npy", values)
    settings = {
        "feature_space": "matrix", "orientation": "feature_by_time", "n_components": 3,
        "min_timepoints": 20, "epsilon": 8.0, "delta": 1e-3, "n_rounds": 12, "basis": "none",
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib", None)  # the words are what could leak
        # Seeded, because among so many digits a short number may turn up by chance.
        simulate(data, out=root / "out", through="wire", settings=settings, seed=3)
    shutil.rmtree(data)  # so that nothing below can be found there by mistake
    return root / "out"


def content(folder: Path) -> bytes:
    """Return all bytes of a folder, packed files unpacked."""
    parts = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            raw = path.read_bytes()
            parts += [path.name.encode(), gzip.decompress(raw) if path.suffix == ".gz" else raw]
    return b"\0".join(parts)


def texts_of(private: Path) -> list[bytes]:
    """Return what is written of single subjects: a label, long enough numbers."""
    courses = next(private.rglob("*_timeseries.tsv")).read_text().splitlines()[1:20]
    cells = [cell for line in courses for cell in line.split("\t")[3:]]
    for name in ("fnc.tsv", "map_agreement.tsv"):
        cells += (private / name).read_text().splitlines()[1].split("\t")[1:]
    return [CANARY.encode(), *(c.encode() for c in cells if len(c.strip("-0.")) >= 6)]


def binaries_of(private: Path) -> list[bytes]:
    """Return time points of a subject as the bytes of doubles and of single floats."""
    path = next(private.rglob("*_timeseries.tsv"))
    table = np.genfromtxt(path, skip_header=1, delimiter="\t")[:, 3:]
    singles = table.ravel()[:60].astype(np.float32)
    return [x.tobytes() for x in (*singles, *singles.astype(np.float64))]


def test_the_private_folders_hold_the_canaries_and_the_consortium_none(out):
    shared = content(out / "consortium")
    for site in ("local0", "local1", "local2"):
        private = out / site / "private"
        own, planted = content(private), texts_of(private)
        assert len(planted) > 40
        assert all(text in own for text in planted), "the scan would see nothing"
        assert [s for s in (*planted, *binaries_of(private)) if s in shared] == []


def test_the_consortium_page_names_no_subject_and_no_file(out):
    page = (out / "consortium" / "index.html").read_text()
    assert CANARY not in page
    assert "_bold" not in page
    assert CANARY in (out / "local0" / "private" / "index.html").read_text()


@pytest.mark.parametrize("site", ["local0", "local1", "local2"])
def test_a_site_can_show_every_reply_that_left_it(out, site):
    private = out / site / "private"
    lines = [json.loads(line) for line in (private / "sent.jsonl").read_text().splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["message"] == "SiteCard"
    assert lines[-1]["message"] == "Done"
    releases = sum(line["message"] == "Masked" for line in lines)
    charged = len(files.read_json(private / "ledger.json")["entries"])
    # The probe of the masks is a masked sum of zeros, which costs nothing.
    assert releases == charged + 1
    assert len({line["sha256"] for line in lines}) == len(lines)


def test_the_clip_factors_and_maps_of_every_subject_are_there(out):
    rows = files.read_table(out / "local1" / "private" / "subjects.tsv")
    assert len(rows) == 4
    for name in ("clip_pca", "clip_whitening", "clip_iterate"):
        factors = [float(row[name]) for row in rows]
        assert all(0.0 < factor <= 1.0 for factor in factors)
    assert {row["clip_pca"] for row in rows} == {"1"}  # a projector is never clipped
    assert len(list((out / "local1" / "private").rglob("*_statmap.csv"))) == 4
