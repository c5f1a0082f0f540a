"""The layouts that a site may have on its disk: BIDS derivatives, text tables, .mat, .img pairs.

Belongs to `cape/data/discovery.py`.
"""

import sys
from dataclasses import replace
from pathlib import Path

import h5py
import nibabel as nib
import numpy as np
import pytest
import scipy.io

from cape.cli import validate_command
from cape.data import pipeline
from cape.data.bids import confounds_beside
from cape.data.images import read_image
from cape.data.issues import Findings, UnusableFile
from cape.data.matrices import read_matrix
from cape.data.pipeline import inspect_site
from cape.data.runs import SiteRun
from cape.data.space import grid_of, mask_space
from cape.data.subjects import subject_matrix
from cape.errors import DataError
from cape.settings.config import Config
from support.sites import discover, load_site, why_stopped

MATRIX = replace(
    Config(epsilon=1.0, delta=1e-5), feature_space="matrix", min_timepoints=5,
    standardize="demean",
)  # fmt: skip
X = np.random.default_rng(0).standard_normal((4, 30)).round(4)


def derivatives(folder: Path, *names: str) -> Path:
    for name in names:
        sub, *more = name.split("_")
        ses = [part for part in more if part.startswith("ses-")]
        path = folder.joinpath(sub, *ses, "func", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def runs(
    folder: Path, given: dict[str, object], wanted: str
) -> tuple[dict[str, list[str]], list[str]]:
    findings = Findings("B")
    config = replace(MATRIX, feature_space="mask", bids_filter=wanted)
    found = discover(folder, given, config, findings)
    names = {s.label: [run.path.name for run in s.runs] for s in found}
    return names, [finding.private for finding in findings.listing()]


MNI = "space-MNI152NLin2009cAsym"


def test_a_filter_that_fits_nothing_lists_what_is_there(tmp_path):
    derivatives(tmp_path, "sub-1_task-rest_space-MNI152NLin6Asym_res-2_desc-preproc_bold.nii.gz")
    names, texts = runs(tmp_path, {}, f"{MNI}_desc-preproc")
    assert names == {"sub-1": []}
    assert len(texts) == 1
    assert "CAPE-W104" in texts[0]
    assert "1 image with desc-preproc, res-2, space-MNI152NLin6Asym, task-rest" in texts[0]
    assert "Fix: correct the folder" in texts[0]
    assert "CAPE-E102" in runs(tmp_path, {"bids": "../x"}, "task-rest")[1][0]
    assert "CAPE-E139" in runs(tmp_path, {"bids": ".", "data": ["x.nii"]}, "")[1][0]


def test_confounds_are_those_of_the_run_whatever_its_space(tmp_path):
    folder = tmp_path / "sub-1" / "func"
    folder.mkdir(parents=True)
    for name in ("sub-1_task-rest_run-1", "sub-1_task-rest_run-2"):
        (folder / f"{name}_desc-confounds_timeseries.tsv").write_text("csf\n")
    image = folder / f"sub-1_task-rest_run-2_{MNI}_res-2_desc-preproc_bold.nii.gz"
    found = confounds_beside(image)
    assert found.name == "sub-1_task-rest_run-2_desc-confounds_timeseries.tsv"
    assert confounds_beside(folder / "scan.nii.gz") is None


# ------------------------------------------------------------------------------- matrices


def written(folder: Path, kind: str) -> str:
    name = f"sub-1.{kind}"
    path = folder / name
    if kind == "npz":
        np.savez(path, X=X)
    elif kind == "mat":
        scipy.io.savemat(path, {"X": X, "other": np.eye(2)})
    else:
        sign = "," if kind == "csv" else "\t"
        lines = [sign.join(f"c{t}" for t in range(30))]
        lines += [sign.join(f"{v:.4f}" for v in row) for row in X]
        path.write_text("\ufeff# made by hand\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return name


@pytest.mark.parametrize("kind", ["npz", "mat", "csv", "tsv"])
def test_the_same_matrix_in_every_format_gives_the_same_data(tmp_path, kind):
    written(tmp_path, kind)
    site = load_site(tmp_path, {}, MATRIX, site="B")
    expected = tmp_path / "npy"
    expected.mkdir()
    np.save(expected / "sub-1.npy", X)
    oracle = load_site(expected, {}, MATRIX, site="B")
    np.testing.assert_allclose(
        subject_matrix(site.subjects[0], site.space, MATRIX),
        subject_matrix(oracle.subjects[0], oracle.space, MATRIX),
        atol=1e-6,
    )


def test_another_name_of_the_variable_is_the_owners_setting(tmp_path):
    scipy.io.savemat(tmp_path / "sub-1.mat", {"bold": X, "masked": X, "notes": "text"})
    code, detail = why_stopped(tmp_path, MATRIX)
    assert code == "CAPE-E142"
    assert "bold (4, 30)" in detail
    assert load_site(tmp_path, {}, replace(MATRIX, variable="bold"), site="B").subjects


@pytest.mark.parametrize("kind", ["mat", "npz", "mat73"])
def test_the_only_matrix_of_a_file_is_read_whatever_its_name(tmp_path, kind):
    """DPABI writes ROISignals_Sub_001.mat with the one variable ROISignals."""
    name = f"ROISignals_Sub_001.{kind[:3]}"
    if kind == "npz":
        np.savez(tmp_path / name, ROISignals=X, TR=2.0)
    elif kind == "mat":
        scipy.io.savemat(tmp_path / name, {"ROISignals": X, "TR": 2.0, "names": "text"})
    else:
        mat73(tmp_path / name)
        with h5py.File(tmp_path / name, "r+") as file:
            file.move("X", "ROISignals")
            file.create_dataset("TR", data=np.array([[2.0]]))
    for headers_only in (False, True):
        run = SiteRun(path=tmp_path / name, name=name)
        series = read_matrix(run, "feature_by_time", headers_only=headers_only)
        assert series.values.shape == X.shape
    np.testing.assert_allclose(read_matrix(run, "feature_by_time").values, X, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("KKI_0050772_rois_aal.1D", "#2001\t#2002\n.5\t1\n2\t3\n4\t5\n", ("2001", "2002")),
        ("sub-1.1D", "# 2001 2002\n.5 1\n2 3\n4 5\n", ("2001", "2002")),
        ("sub-1.1D", "# made by AFNI on a day\n 0.5  1\n 2  3\n 4  5\n", ()),
        ("sub-1.txt", "0.5 1\n2 3\n4 5\n", ()),
        ("sub-1.txt", "0.5,1\n2,3\n4,5\n", ()),
        ("sub-1.txt", "Frontal_L Frontal_R\n0.5 1\n2 3\n4 5\n", ("Frontal_L", "Frontal_R")),
        ("sub-1.csv", "#Frontal_L,#Frontal_R\n0.5,1\n2,3\n4,5\n", ("Frontal_L", "Frontal_R")),
        ("sub-1.csv", "1,2\n0.5,1\n2,3\n4,5\n", ("1", "2")),
        ("sub-1.tsv", "\t2001\t2002\n0\t0.5\t1\n1\t2\t3\n2\t4\t5\n", ("2001", "2002")),
    ],
)
def test_tables_of_regions_that_people_have_are_read(tmp_path, name, text, names):
    (tmp_path / name).write_text(text)
    series = read_matrix(SiteRun(path=tmp_path / name, name=name), "time_by_feature")
    np.testing.assert_array_equal(series.values, [[0.5, 2, 4], [1, 3, 5]])
    assert series.columns == names


def test_a_table_with_names_of_regions_is_never_read_as_features_by_time(tmp_path):
    """Rows outnumber regions, and the header names these: 3 rows would be 3 features."""
    (tmp_path / "sub-1.csv").write_text("Frontal_L,Insula_R\n1,2\n3,4\n5,6\n")
    run = SiteRun(path=tmp_path / "sub-1.csv", name="sub-1.csv")
    with pytest.raises(UnusableFile) as refused:
        read_matrix(run, "feature_by_time")
    assert refused.value.issue.observed == "3 rows below 2 names such as 'Frontal_L'"
    # Voxels by volumes have more rows than columns as well, and t1, t2 are no regions.
    (tmp_path / "sub-1.csv").write_text("t1,t2\n1,2\n3,4\n5,6\n")
    assert read_matrix(run, "feature_by_time").values.shape == (3, 2)


def test_a_text_about_a_folder_is_nobody(tmp_path):
    written(tmp_path, "tsv")
    for name in ("README.txt", "licence.txt", "scanner.txt"):
        (tmp_path / name).write_text("1 2\n3 4\n")
    assert [s.label for s in load_site(tmp_path, {}, MATRIX, site="B").subjects] == ["sub-1"]


def mat73(path: Path, *, kind: str = "double", **options: object) -> Path:
    """Write X as MATLAB does: a text of 512 bytes, then HDF5 with the axes turned round."""
    with h5py.File(path, "w", userblock_size=512) as file:
        held = file.create_dataset("X", data=options.pop("data", X.T), **options)
        held.attrs["MATLAB_class"] = np.bytes_(kind)
        file.create_group("#refs#")
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512))
    return path


@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "shuffle": True}])
def test_a_mat_file_of_version_7_3_gives_the_same_subject_as_version_5(tmp_path, options):
    scipy.io.savemat(tmp_path / "sub-1.mat", {"X": X})
    old = load_site(tmp_path, {}, MATRIX, site="B")
    expected = subject_matrix(old.subjects[0], old.space, MATRIX)
    mat73(tmp_path / "sub-1.mat", **options)
    new = load_site(tmp_path, {}, MATRIX, site="B")
    np.testing.assert_array_equal(subject_matrix(new.subjects[0], new.space, MATRIX), expected)
    quick = inspect_site(tmp_path, {}, MATRIX, site="B", headers_only=True)
    facts = [(s.n_features, s.n_timepoints, s.rank) for s in (*quick.subjects, *new.subjects)]
    assert facts == [(4, 30, 4)] * 2


def test_without_the_extra_a_mat_file_of_version_7_3_says_what_to_install(tmp_path, monkeypatch):
    mat73(tmp_path / "sub-1.mat")
    monkeypatch.setitem(sys.modules, "h5py", None)
    code, detail = why_stopped(tmp_path, MATRIX)
    assert code == "CAPE-E141"
    assert "pip install 'coinstac-cape[matlab73]'" in detail
    assert "save(..., '-v7')" in detail


def mat73_with(path: Path, *names: str) -> None:
    mat73(path)
    with h5py.File(path, "r+") as file:
        for name in names:
            file.copy("X", name)
        del file["X"]


def mat73_sparse(path: Path) -> None:
    """Write X as MATLAB writes sparse(X): a group of three vectors."""
    with h5py.File(mat73(path), "r+") as file:
        del file["X"]
        file.create_group("X").attrs["MATLAB_sparse"] = np.uint64(len(X))
        file["X/data"], file["X/ir"], file["X/jc"] = np.ones(2), np.arange(2), np.arange(3)


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8"])
def test_whole_numbers_and_single_ones_of_version_7_3_are_data(tmp_path, dtype):
    kind = {"float32": "single", "uint8": "logical"}.get(dtype, dtype)
    mat73(tmp_path / "sub-1.mat", data=np.abs(X.T).round().astype(dtype), kind=kind)
    site = load_site(tmp_path, {}, replace(MATRIX, standardize="none"), site="B")
    assert (site.subjects[0].n_features, site.subjects[0].n_timepoints) == (4, 30)


@pytest.mark.parametrize(
    ("write", "code", "part"),
    [
        (lambda path: mat73(path, data=X.T + 1j), "E114", "complex"),
        (lambda path: mat73(path, data=np.array(b"text")), "E114", "text"),
        # Letters and objects are whole numbers in the file: they were taken for data once.
        (lambda path: mat73(path, data=np.full(X.T.shape, 97, "u2"), kind="char"),
         "E114", "class char"),
        (lambda path: mat73(path, data=np.full(X.T.shape, 7, "u4"), kind="string"),
         "E114", "class string"),
        (mat73_sparse, "E114", "a sparse matrix"),
        (lambda path: mat73(path, data=X.T[None]), "E140", "shape (4, 30, 1)"),
        (lambda path: mat73(path, data=None, shape=(10**6, 10**6), dtype="f8", chunks=(9, 9)),
         "E141", "more than the file holds"),
        (lambda path: mat73(path, compression="lzf"), "E141", "MATLAB does not use"),
        (lambda path: mat73(path, external=[(str(path) + ".raw", 0, h5py.h5f.UNLIMITED)]),
         "E141", "lies in another file"),
        (lambda path: mat73_with(path, "bold", "masked"), "E142", "bold, masked"),
        (lambda path: path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(512)), "E141", "its end"),
    ],
    ids=["complex", "text", "letters", "object", "sparse", "3-D", "bomb", "filter", "external",
         "no variable", "no HDF5"],
)  # fmt: skip
def test_a_mat_file_of_version_7_3_is_refused_before_anything_is_allocated(
    tmp_path, write, code, part
):
    write(tmp_path / "sub-1.mat")
    for headers_only in (False, True):
        listing = {"data": "sub-1.mat"}
        told = why_stopped(tmp_path, MATRIX, listing=listing, headers_only=headers_only)
        assert told[0] == f"CAPE-{code}"
        assert part in told[1]


def test_complex_numbers_of_version_5_are_among_what_a_fast_check_says_it_does_not_find(tmp_path):
    """scipy tells the class of a variable before reading it, and a complex one is a double."""
    scipy.io.savemat(tmp_path / "sub-1.mat", {"X": X + 1j})
    assert inspect_site(tmp_path, {}, MATRIX, site="B", headers_only=True).error is None
    assert why_stopped(tmp_path, MATRIX)[0] == "CAPE-E114"
    assert "complex numbers in .mat files" in validate_command.NOT_LOOKED_AT


@pytest.mark.parametrize("orientation", ["feature_by_time", "time_by_feature"])
def test_matrices_without_features_do_not_make_a_site_ready(tmp_path, orientation):
    """A site of such files had no finding at all: `cape validate` said READY, 0 subjects."""
    empty = np.zeros((0, 30) if orientation == "feature_by_time" else (30, 0))
    np.save(tmp_path / "sub-1.npy", empty)
    for headers_only in (False, True):
        config = replace(MATRIX, orientation=orientation)
        code, detail = why_stopped(tmp_path, config, headers_only=headers_only)
        assert code == "CAPE-E140"
        assert f"shape {empty.shape}" in detail


def test_a_link_into_another_file_is_not_followed(tmp_path):
    mat73(tmp_path / "other.h5")
    with h5py.File(mat73(tmp_path / "sub-1.mat"), "r+") as file:
        del file["X"]
        file["X"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "X")
    assert why_stopped(tmp_path, MATRIX, listing={"data": "sub-1.mat"})[0] == "CAPE-E142"


def test_damaged_mat_files_of_version_5(tmp_path):
    scipy.io.savemat(tmp_path / "sub-1.mat", {"X": X}, do_compression=True)
    content = (tmp_path / "sub-1.mat").read_bytes()
    for cut in (140, 200, len(content) - 40):
        (tmp_path / "sub-1.mat").write_bytes(content[:cut])
        assert why_stopped(tmp_path, MATRIX)[0] in ("CAPE-E111", "CAPE-E142"), cut
    scipy.io.savemat(tmp_path / "sub-1.mat", {"X": {"a": X}})
    assert why_stopped(tmp_path, MATRIX)[0] == "CAPE-E114"
    (tmp_path / "sub-1.mat").write_text("1 2 3\n")
    assert why_stopped(tmp_path, MATRIX)[0] == "CAPE-E109"


# ------------------------------------------------------------------------------- pairs


def test_a_pair_of_hdr_and_img_is_read_as_the_single_file(tmp_path):
    grid = grid_of(mask_space(replace(MATRIX, feature_space="mask", mask="MNI152-10mm")))
    values = np.random.default_rng(0).integers(0, 900, (*grid.shape, 3)).astype(np.int16)
    nib.Nifti1Image(values, grid.affine).to_filename(tmp_path / "one.nii")
    nib.Nifti1Pair(values, grid.affine).to_filename(tmp_path / "two.img")
    one, two = (
        read_image(SiteRun(path=tmp_path / name, name=name), grid)
        for name in ("one.nii", "two.img")
    )
    np.testing.assert_array_equal(one.values, two.values)
    before = two.digest
    header = bytearray((tmp_path / "two.hdr").read_bytes())
    header[150] ^= 1
    (tmp_path / "two.hdr").write_bytes(header)
    assert read_image(SiteRun(path=tmp_path / "two.img", name="two.img"), grid).digest != before


def test_files_that_differ_say_nothing_of_the_features_without_noise_either(tmp_path):
    rng = np.random.default_rng(1)
    for name, n in (("sub-0_run-1", 13), ("sub-1", 12), ("sub-2", 12)):
        np.save(tmp_path / f"{name}.npy", rng.standard_normal((n, 80 + (name == "sub-1"))))
    config = replace(MATRIX, private=False)
    with pytest.raises(DataError, match="E100") as stop:
        pipeline.load_site(tmp_path, {}, config, site="B")
    assert "sub-1.npy: 12 features, 81 time points" in stop.value.detail
    site, _ = pipeline.load_site(tmp_path, {}, replace(config, n_features=12), site="B")
    assert (site.space.n_features, site.failed) == (12, ("sub-0",))
    (tmp_path / "sub-0_run-1.npy").unlink()
    assert pipeline.load_site(tmp_path, {}, config, site="B")[0].space.n_features == 12
