"""An atlas of any name that a site types is copied to the name that settings allow.

Belongs to `cape/planning/first_settings.py`.
"""

import shlex
import tomllib
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.cli import main
from cape.data.label_table import table_beside
from cape.errors import ConfigError
from cape.planning.first_settings import InitOptions, adopting, propose

AFFINE = nib.affines.from_matvec(np.diag([10.0, 10.0, 10.0]), [-100.0, -134.0, -72.0])


def written(path: Path, shape: tuple[int, ...], code: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.zeros(shape, np.int16)
    for k in range(15):
        values[5:7, 4 + k, 9], values[14:16, 4 + k, 9] = 2 * k + 1, 2 * k + 2
    if len(shape) == 4:
        values = np.random.default_rng(len(path.name) + ord(path.stem[-1])).integers(
            500, 1500, shape, dtype=np.int16
        )
    image = nib.Nifti1Image(values, AFFINE)
    image.header.set_xyzt_units("mm", "sec")
    image.set_sform(AFFINE, code)
    image.set_qform(AFFINE, code)
    image.to_filename(path)
    return path


def lab(folder: Path, code: int = 4, shape: tuple[int, ...] = (21, 25, 20)) -> Path:
    """Write images as SPM names them, four people of one lab, whose layout is typed."""
    for m in range(4):
        written(folder / f"swrap{m:02d}.nii", (*shape, 40), code)
    (folder / "site-policy.toml").write_text('layout = "swrap{subject}.nii"\n')
    return folder


def test_a_lab_gets_the_atlas_that_it_types_and_its_settings_validate(tmp_path, monkeypatch, typed):
    monkeypatch.chdir(tmp_path)
    folder = lab(Path("my lab"), code=2, shape=(22, 25, 20))
    written(folder / "AAL.nii", (21, 25, 20), code=2)
    (folder / "AAL.tsv").write_text("index\tname\n1\tArea_L\n2\tArea_R\n")
    assert main(["init", "my lab", "--out", "other.toml"]) == 0
    assert 'mask = "MNI152' in Path("other.toml").read_text()  # names of makers mean nothing
    assert "my lab: 4 people" in typed("init", "my lab", "--atlas", "my lab/AAL.nii").out
    settings = tomllib.loads((folder / "settings.toml").read_text())
    assert (settings["atlas"], settings["resample"]) == ("atlas.nii", "to_mask")
    assert settings["label_pairs"] == "1-2"
    # The copy decided on every later init, and nothing led back to voxels.
    again = typed("init", "my lab", "--out", "again.toml").out
    (line,) = (line for line in again.splitlines() if "of voxels without it: " in line)
    (copy,) = (word for word in shlex.split(line) if word.endswith("atlas.nii"))
    Path(copy).rename("kept.nii")
    assert "of voxels" not in typed("init", "my lab", "--out", "voxels.toml").out
    assert 'mask = "MNI152' in Path("voxels.toml").read_text()
    Path("kept.nii").rename(copy)
    line = [word for pair in ("min_timepoints=30",) for word in ("--set", pair)]
    assert main(["validate", "my lab", *line]) == 0


def test_every_site_of_a_consortium_gets_the_atlas_with_its_table(tmp_path):
    name = "tpl-MNI152NLin6Asym_atlas-Schaefer2018_res-02_desc-400Parcels_dseg.nii.gz"
    for site in ("a", "b"):
        for m in range(2):
            image = f"sub-{site}{m}_task-rest_space-MNI152NLin6Asym_bold.nii.gz"
            written(tmp_path / "s" / site / image, (21, 25, 20, 40))
    atlas = written(tmp_path / name, (21, 25, 20))
    labels = name.replace("_res-02", "").replace(".nii.gz", ".tsv")
    (tmp_path / labels).write_text("index\tname\n1\tA_L\n2\tA_R\n")
    assert main(["init", str(tmp_path / "s"), "--atlas", str(atlas)]) == 0
    settings = tomllib.loads((tmp_path / "s/settings.toml").read_text())
    assert settings["site_names"] == "a,b"
    assert (settings["atlas"], settings["label_pairs"]) == ("atlas.nii.gz", "1-2")
    assert "task-rest" in settings["bids_filter"]
    assert "resample" not in settings
    assert (tmp_path / "s/b/atlas.tsv").is_file()


def test_settings_that_are_there_and_another_atlas_are_never_replaced(tmp_path, typed):
    folder = lab(tmp_path / "lab")
    other = written(tmp_path / "AAL.nii", (21, 25, 20))
    (folder / "settings.toml").write_text("# mine\n")
    assert "exists already" in typed("init", str(folder), "--atlas", str(other), code=2).err
    assert (folder / "settings.toml").read_text() == "# mine\n"
    assert not (folder / "atlas.nii").exists()
    (folder / "atlas.nii").write_bytes(b"another")
    for image, problem in (
        (other, "already exists with other content"),
        (folder / "settings.toml", r"no .nii"),
    ):
        with pytest.raises(ConfigError, match=problem), adopting(folder, image):
            pass
    assert (folder / "atlas.nii").read_bytes() == b"another"


def test_an_init_that_fails_removes_the_copies_of_the_atlas_and_no_file_that_was_there(
    tmp_path, capsys
):
    """Copies stayed, and the next `cape init` took an atlas that nobody had confirmed."""
    folder, other = lab(tmp_path / "lab"), written(tmp_path / "AAL.nii", (21, 25, 20))
    (tmp_path / "AAL.txt").write_text("1\tA_L\t9\t9\t9\n2\tA_R\t9\t9\t9\n")
    (folder / "atlas.nii").write_bytes(other.read_bytes())
    nowhere = str(tmp_path / "nowhere" / "settings.toml")
    assert main(["init", str(folder), "--atlas", str(other), "--out", nowhere]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert (folder / "atlas.nii").is_file()
    assert not (folder / "atlas.txt").exists()


def test_the_table_of_an_atlas_may_leave_out_the_grid(tmp_path):
    image = written(tmp_path / "Schaefer2018_100Parcels_order_2mm.nii.gz", (21, 25, 20))
    lines = "1\t7Networks_LH_Vis_1\t120\t18\t131\t0\n2\t7Networks_RH_Vis_1\t120\t18\t132\t0\n"
    (tmp_path / "Schaefer2018_100Parcels_order.txt").write_text(lines)
    (tmp_path / "Schaefer2018_100Parcels_order_2.txt").write_text("no table")
    assert table_beside(image) == tmp_path / "Schaefer2018_100Parcels_order.txt"


def test_images_in_spaces_of_their_own_are_not_brought_to_the_grid_of_an_atlas(tmp_path):
    folder = lab(tmp_path / "lab", code=1, shape=(22, 25, 20))
    written(folder / "atlas.nii", (21, 25, 20))
    settings = tomllib.loads(propose(InitOptions(folder=folder)).text)
    assert settings["atlas"] == "atlas.nii"
    assert "resample" not in settings


def test_tables_beside_an_atlas_of_another_name_are_tables(tmp_path, typed):
    """They were refused: an image lay there that was nobody's."""
    rng = np.random.default_rng(3)
    (tmp_path / "lab").mkdir()
    for m in range(2):
        header = ",".join(map(str, range(1, 31)))
        table = tmp_path / f"lab/sub-{m}.csv"
        np.savetxt(table, rng.normal(size=(40, 30)), delimiter=",", header=header, comments="")
    atlas = written(tmp_path / "lab/HarvardOxford-cort-maxprob-thr25-2mm.nii.gz", (21, 25, 20))
    elsewhere = tmp_path / atlas.name
    line = ["init", str(tmp_path / "lab"), "--orientation", "time_by_feature"]
    assert "tables of series: 2" in typed(*line, "--out", str(tmp_path / "other.toml")).out
    atlas.rename(elsewhere)
    assert main([*line, "--atlas", str(elsewhere)]) == 0
    assert 'atlas = "atlas.nii.gz"' in (tmp_path / "lab/settings.toml").read_text()
