"""Every defect that can be made in files: its code, its severity, and its two texts."""

from __future__ import annotations

import pickle
import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cape.data import pipeline
from cape.data.pipeline import Inspection, inspect_site
from cape.errors import DataError
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.settings.config import Config
from support.defects import DEFECTS, make_defect
from support.sites import load_site, private_code

# name: code of the finding, severity, public code if the site stops, parts of the private text
IMAGE_ROWS = {
    "missing": ("E101", "E", "E101", ["sub-998", "nearest: sub-0"]),
    "outside": ("E102", "E", "E102", ["../local0/sub-002", "inside the base directory"]),
    "folder": ("E103", "E", "E103", ["more is a folder", "list its files"]),
    "no_files": ("E104", "E", "E104", [".nii.gz, .img in ", "0 *.nii* below it"]),
    "duplicate": ("W105", "X", "", ["sub-002 and sub-999", "sub-999.nii.gz", "2 mu"]),
    "empty": ("W107", "X", "", ["sub-002_", "0 bytes"]),
    "lfs_pointer": ("W108", "X", "", ["Git-LFS pointer", "git lfs pull"]),
    "text_as_nii": ("W109", "X", "", ["named .nii.gz, is text", "Expected gzip"]),
    "truncated_gz": ("W110", "X", "", ["sub-002_", "end-of-stream"]),
    "truncated_nii": ("W111", "X", "", ["sub-002_", "bytes. Expected"]),
    "three_d": ("W112", "X", "", ["one volume, shape (21, 25, 20)", "4-D series"]),
    "five_d": ("W113", "X", "", ["(21, 25, 20, 2, "]),
    "complex": ("W114", "X", "", ["complex numbers", "real numbers"]),
    "no_affine": ("W115", "X", "", ["sform and qform are 0", "trust_grid = 1"]),
    "left_right": ("W116", "X", "", ["sform LAS, qform RAS"]),
    "wrong_grid": ("W117", "X", "", ["(20, 25, 20), voxel 10.0 mm", "(21, 25, 20), 10.0 mm"]),
    "rounded_affine": ("W118", "W", "", ["0.04 mm", "at most 0.1 mm"]),
    "shifted_affine": ("W119", "X", "", ["displaced by 2 mm (0.2 voxels)", "MNI variant?"]),
    "flipped_axes": ("W120", "W", "", ["SRA to RAS", "LAS to RAS"]),
    "native_space": ("E121", "E", "E100", ["6 of 10 subjects", "common space?"]),
    "nan": ("W125", "X", "", ["sub-002: ", "at most 0.1 %"]),
    "constant": ("W126", "X", "", ["sub-002: 71.5 %", "at most 20 %"]),
    "dead": ("W127", "X", "", ["sub-002"]),
    "coverage": ("W128", "X", "", ["sub-002: 28.5 %", "at least 50 %"]),
    "too_short": ("W129", "X", "", ["sub-002: 5 time points", "min_timepoints = 17"]),
    "no_tr": ("W132", "W", "", ["manifest, the JSON sidecar and the header", "column 'tr'"]),
    "tr_in_ms": ("W133", "W", "", ["2000, units msec"]),
    "other_tr": ("W134", "X", "", ["sub-002: 2.5 s", "Expected 2 s (tr)"]),
    "dummies": ("W135", "W", "", ["sub-002: z", "drop_first_volumes"]),
    "ragged_table": ("E138", "E", "E138", ["line 12 'sub-998.nii.gz,998,2.0,extra' has 4 cells"]),
    "decimal_comma": ("E138", "E", "E138", ["'2,0'", "decimal point"]),
    "no_file_column": ("E139", "E", "E139", ["found scan", "Expected participant_id, file"]),
    "same_names": ("E162", "E", "E162", ["2 rows (a/sub-002", "1 file sub-002"]),
    "surface": ("E163", "E", "E163", ["dtseries.nii", "this feature space is of volumes"]),
}
MATRIX_ROWS = {
    "truncated_npy": ("W111", "X", "", ["sub-002.npy: 36064 bytes"]),
    "complex": ("W114", "X", "", ["complex numbers"]),
    "too_short_matrix": ("W129", "X", "", ["5 time points", "min_timepoints = 20"]),
    "pickle_npy": ("W140", "X", "", ["never unpickled", "re-save as a float array"]),
    "mat_73": ("W141", "X", "", ["sub-002.mat: MATLAB 7.3, which is HDF5", "'-v7'"]),
    "no_variable": ("W142", "X", "", ["bold (900, 20)", "variable X"]),
    "swapped_orientation": ("W143", "X", "", ["20 features, 900 time points", "transposed"]),
    "other_features": ("W144", "X", "", ["899 features", "Expected 900"]),
    "empty": ("W107", "X", "", ["sub-002.npy"]),
    "text_as_nii": ("W109", "X", "", ["named .npy, is text"]),
    "missing": ("E101", "E", "E101", ["sub-998"]),
}
BIDS_ROWS = {  # of a site where filters leave nothing of three short subjects: too many fail
    "confound_rows": (
        "E136",
        "E",
        "E100",
        ["rows, ", "after dropping 0 dummies)", "timeseries.tsv"],
    ),
    "confound_column": ("E137", "E", "E100", ["has no trans_x; did you mean 'trans_", "trans_y"]),
    "confound_text": ("E137", "E", "E100", ["line 2, column trans_x"]),
}
IN_THE_DATA = {  # what headers and tables cannot tell; the copy of a file is one by its content
    "duplicate", "truncated_gz", "native_space", "nan", "constant", "dead", "coverage", "dummies",
    "bad_rank",
} & set(DEFECTS)  # fmt: skip
NO_NAME = re.compile(r"sub-|\.nii|\.npy|\.npz|manifest\.|/|\b\d+ (bytes|subjects|features)")


def contents_of(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder: checks must not change the data."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def settings_of(folder: Path, **changes: object) -> Config:
    values = tomllib.loads((folder / "settings.toml").read_text(encoding="utf-8"))
    for name in ("computation", "n_components"):  # of a computation, not of the data
        values.pop(name, None)
    return replace(Config.from_input({**values, "epsilon": 1.0, "delta": 1e-5}), **changes)


@pytest.fixture(scope="module")
def consortia(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for kind, preset in (("image", "brain"), ("matrix", "paper"), ("bids", "brain")):
        folders[kind] = tmp_path_factory.mktemp("consortia") / kind
        write_consortium(
            folders[kind],
            Request(
                preset=preset,
                site_sizes=(1, 10),
                n_timepoints=20,
                n_networks=3,
                layout="bids" if kind == "bids" else "files",
            ),
        )
    return folders


@pytest.fixture
def broken_site(consortia: dict[str, Path], tmp_path: Path):
    def make(kind: str, name: str) -> tuple[Path, Config]:
        folder = tmp_path / "site"
        shutil.copytree(consortia[kind] / "local1", folder)
        make_defect(name, folder, kind=kind)
        return folder, settings_of(consortia[kind])

    return make


def _assert_no_text_for_others_names_anything(found: Inspection, folder: Path) -> None:
    texts = [finding.public for finding in found.findings]
    texts.append(str(found.error) if found.error else "")
    for text in texts:
        assert not NO_NAME.search(text.replace("site-error.txt", "")), text
        assert str(folder) not in text


def _assert_headers_tell_the_same(
    found: Inspection, folder: Path, config: Config, *, unless: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for reader in ("images._read_volumes", "arrays.read_array"):
            patch.setattr(f"cape.{'data.' * reader.startswith('images')}{reader}", _no_data)
        quick = inspect_site(folder, {}, config, site="local1", headers_only=True)
    told = {finding.private for finding in quick.findings}
    everything = {finding.private for finding in found.findings}
    if unless:
        assert {text[:9] for text in told} < {text[:9] for text in everything}
    else:
        assert told == everything


def _no_data(*args: object) -> None:
    raise AssertionError("data were read")


CASES = [
    pytest.param(kind, name, *expected, id=f"{kind}-{name}")
    for kind, rows in (("image", IMAGE_ROWS), ("matrix", MATRIX_ROWS), ("bids", BIDS_ROWS))
    for name, expected in rows.items()
]


@pytest.mark.parametrize(("kind", "name", "code", "severity", "public", "parts"), CASES)
def test_each_defect_has_its_code_its_severity_and_both_texts(
    broken_site, kind, name, code, severity, public, parts
):
    folder, config = broken_site(kind, name)
    before = contents_of(folder)
    found = inspect_site(folder, {}, config, site="local1")
    assert contents_of(folder) == before
    _assert_headers_tell_the_same(found, folder, config, unless=name in IN_THE_DATA)
    row = [f for f in found.findings if f.code == f"CAPE-{code}" and f.severity == severity]
    assert len(row) == 1, [f.private for f in found.findings]
    assert row[0].private.startswith(f"CAPE-{code} ")
    for part in parts:
        assert part in row[0].private
    if severity != "W":
        assert " Expected " in row[0].private
        assert " Fix: " in row[0].private
    assert int(code[2:]) == DEFECTS[name].row
    _assert_no_text_for_others_names_anything(found, folder)
    if not public:
        assert found.error is None
        assert found.accepted is not None
        # Who fails is counted: how many people a site lists depends on names alone.
        n_failed = 1 if severity == "X" else 0
        assert found.accepted.n_subjects == len(found.labels)
        assert len(found.accepted.subjects) == len(found.labels) - n_failed
        assert len(found.accepted.failed) == n_failed
        assert row[0].public == ""
        return
    assert found.accepted is None
    with pytest.raises(DataError) as caught:
        load_site(folder, {}, config, site="local1")
    assert caught.value.code == f"CAPE-{public}"
    assert str(caught.value) == row[0].public
    assert "local1" in row[0].public
    assert row[0].private in caught.value.detail


def test_every_defect_has_a_case():
    covered = {*IMAGE_ROWS, *MATRIX_ROWS, *BIDS_ROWS}
    assert covered == set(DEFECTS)


def test_an_intact_site_has_no_findings_but_the_flip_of_its_x_axis(consortia):
    for kind, codes in (("image", ["CAPE-W120"]), ("matrix", [])):
        found = inspect_site(
            consortia[kind] / "local1", {}, settings_of(consortia[kind]), site="local1"
        )
        assert [finding.code for finding in found.findings] == codes
        assert found.error is None


def test_all_findings_come_at_once_and_the_worst_speaks(broken_site, consortia):
    folder, config = broken_site("image", "three_d")
    files = sorted(folder.glob("sub-*"))
    files[1].write_bytes(b"")
    files[2].write_bytes(files[2].read_bytes()[:500])
    with pytest.raises(DataError) as caught:
        load_site(folder, {}, config, site="local1")
    detail = caught.value.detail
    assert caught.value.code == "CAPE-E100"  # others are told nothing of content
    assert private_code(caught.value) == "CAPE-E107"  # the lowest row
    for text in ("CAPE-E112 ", "CAPE-E110 ", files[0].name, files[1].name, files[2].name):
        assert text in detail


def test_too_many_failures_stop_only_a_site_whose_policy_lets_content_stop_it(broken_site):
    folder, config = broken_site("image", "too_short")
    (folder / "sub-999.nii.gz").write_bytes(b"")
    with pytest.raises(DataError) as caught:
        load_site(folder, {}, config, site="local1")
    assert caught.value.public.startswith("CAPE-E100 ")
    assert "2 of 11 subjects fail, at most 1 should" in caught.value.detail
    loaded, reduced = pipeline.load_site(folder, {}, config, site="local1")
    assert loaded.n_subjects == len(reduced) == 11
    assert loaded.failed == ("sub-002", "sub-999")
    assert {label: Y.shape[1] for label, Y in reduced if not Y.size} == {"sub-002": 0, "sub-999": 0}


def test_a_raw_pickle_is_refused_before_anything_reads_it(tmp_path):
    (tmp_path / "sub-1.npy").write_bytes(pickle.dumps(np.eye(3)))
    config = replace(Config(epsilon=1.0, delta=1e-5), feature_space="matrix")
    with pytest.raises(DataError) as caught:
        load_site(tmp_path, {}, config, site="B")
    assert private_code(caught.value) == "CAPE-E140"
    assert "sub-1.npy: a pickle" in caught.value.detail


def test_a_swapped_first_matrix_does_not_turn_the_others_into_suspects(broken_site):
    folder, config = broken_site("matrix", "swapped_orientation")
    found = inspect_site(
        folder, {}, replace(config, image_shape="", n_basis=0, n_features=900), site="B"
    )
    swapped = [f for f in found.findings if f.code == "CAPE-W143"]
    assert len(swapped) == 1
    assert "sub-002.npy" in swapped[0].private
    assert "sub-003.npy" not in swapped[0].private


def test_too_many_features_without_a_basis_name_both_limits(tmp_path):
    np.save(tmp_path / "sub-1.npy", np.random.default_rng(0).standard_normal((1200, 120)))
    config = replace(Config(epsilon=1.0, delta=1e-5), feature_space="matrix")
    with pytest.raises(DataError, match="max_features=1200 exceeds the limit 1000") as caught:
        load_site(tmp_path, {}, config, site="B")
    assert caught.value.code == "CAPE-E145"
    assert "MB per release" in caught.value.detail


def test_an_unknown_defect_or_one_of_the_other_kind_is_refused_with_the_choices(tmp_path):
    for name, kind in (("tree_d", "image"), ("pickle_npy", "image"), ("three_d", "matrix")):
        with pytest.raises(ValueError, match=f"no defect {name} of {kind} files; there are"):
            make_defect(name, tmp_path, kind=kind)
