"""An atlas by its makers' name is not overlooked: `cape init` prints what to type, and it works."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.cli import main
from cape.errors import ConfigError
from cape.planning.atlas_file import adopted, foreign_atlases, table_beside
from cape.planning.first_settings import propose

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
    """Write images as SPM names them, four people of one lab."""
    for m in range(4):
        written(folder / f"swrap{m:02d}.nii", (*shape, 40), code)
    return folder


def typed_after(said: str) -> int:
    """Type the command that `cape init` printed."""
    line = re.search(r"type: (cape init .*)", said)
    assert line is not None, said
    return main(shlex.split(line[1])[1:])


def test_a_lab_with_aal_beside_its_images_is_told_what_to_type_and_its_settings_validate(
    tmp_path, monkeypatch, capsys
):
    """It was ignored without a word, and AAL.nii was taken for a person of one volume."""
    monkeypatch.chdir(tmp_path)
    folder = lab(Path("my lab"), code=2, shape=(22, 25, 20))
    written(folder / "AAL.nii", (21, 25, 20), code=2)
    of_spm = "<label><index>{}</index><name>Area_{}</name></label>"
    (folder / "AAL.xml").write_text(of_spm.format(1, "L") + "\n" + of_spm.format(2, "R"))
    assert main(["init", "my lab"]) == 0
    said = capsys.readouterr().out
    assert "my lab: 4 people" in said
    assert "my lab/AAL.nii has the name of an atlas, and does not count as data" in said
    assert 'mask = "MNI152' in (folder / "settings.toml").read_text()
    assert typed_after(said) == 0
    settings = tomllib.loads((folder / "settings.toml").read_text())
    assert (settings["atlas"], settings["resample"]) == ("atlas.nii", "to_mask")
    assert settings["label_pairs"] == "1-2"
    assert "looks like" not in capsys.readouterr().out
    assert main(["people", "my lab", "--layout", "{subject}.nii"]) == 0
    assert "taken for an atlas by its name, not for data: AAL.nii" in capsys.readouterr().out
    given = "epsilon=3 delta=1e-5 n_sites=3 min_timepoints=30 accept_low_quality=true"
    line = [word for pair in given.split() for word in ("--set", pair)]
    assert main(["validate", "my lab", *line]) in (0, 3)
    said = capsys.readouterr().out
    assert re.search(r"name of an atlas, and does not count as data.*AAL\.nii", said, re.DOTALL)


def test_a_folder_of_nothing_but_names_of_atlases_is_told_as_that(tmp_path, capsys):
    for name in ("AAL.nii", "Gordon333.nii"):
        written(tmp_path / name, (21, 25, 20, 4))
    assert main(["init", str(tmp_path)]) != 0
    assert "except AAL.nii, whose name is that of an atlas" in capsys.readouterr().err


def test_a_consortium_of_images_by_bids_gets_the_atlas_at_every_site_and_keeps_its_filters(
    tmp_path, capsys
):
    """Of images named by BIDS even atlas.nii.gz itself was ignored."""
    name = "tpl-MNI152NLin6Asym_atlas-Schaefer2018_res-02_desc-400Parcels_dseg.nii.gz"
    for site in ("a", "b"):
        for m in range(2):
            image = f"sub-{site}{m}_task-rest_space-MNI152NLin6Asym_bold.nii.gz"
            written(tmp_path / "s" / site / image, (21, 25, 20, 40))
        written(tmp_path / "s" / site / name, (21, 25, 20))
        labels = name.replace("_res-02", "").replace(".nii.gz", ".tsv")
        (tmp_path / "s" / site / labels).write_text("index\tname\n1\tA_L\n2\tA_R\n")
    assert main(["init", str(tmp_path / "s")]) == 0
    assert typed_after(capsys.readouterr().out) == 0
    settings = tomllib.loads((tmp_path / "s/settings.toml").read_text())
    assert settings["site_names"] == "a,b"
    assert (settings["atlas"], settings["label_pairs"]) == ("atlas.nii.gz", "1-2")
    assert "task-rest" in settings["bids_filter"]
    assert "resample" not in settings
    assert (tmp_path / "s/b/atlas.tsv").is_file()


def test_settings_that_somebody_changed_and_another_atlas_are_never_replaced(tmp_path, capsys):
    folder = lab(tmp_path / "lab")
    other = written(tmp_path / "AAL.nii", (21, 25, 20))
    assert main(["init", str(folder)]) == 0
    text = (folder / "settings.toml").read_text() + "# mine\n"
    (folder / "settings.toml").write_text(text)
    assert main(["init", str(folder), "--atlas", str(other)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (folder / "settings.toml").read_text() == text
    (folder / "atlas.nii").write_bytes(b"another")
    with pytest.raises(ConfigError, match="already exists with other content"):
        list(adopted(other, {"lab": folder}))
    with pytest.raises(ConfigError, match=r"no .nii"):
        list(adopted(folder / "settings.toml", {"lab": folder}))


def test_an_init_that_fails_removes_the_copies_of_the_atlas_and_no_file_that_was_there(
    tmp_path, capsys
):
    """Copies stayed, and the next `cape init` took an atlas that nobody had confirmed."""
    folder, other = lab(tmp_path / "lab"), written(tmp_path / "AAL.nii", (21, 25, 20))
    (tmp_path / "AAL.txt").write_text("1\tA_L\n2\tA_R\n")
    (folder / "atlas.nii").write_bytes(other.read_bytes())
    nowhere = str(tmp_path / "nowhere" / "settings.toml")
    assert main(["init", str(folder), "--atlas", str(other), "--out", nowhere]) == 1
    assert "nowhere" in capsys.readouterr().err
    assert (folder / "atlas.nii").is_file()
    assert not (folder / "atlas.txt").exists()


def test_scans_and_their_tables_are_no_atlas(tmp_path):
    folder = lab(tmp_path)
    (folder / "swrap00.txt").write_text("0.1 0.2\n" * 40)
    written(folder / "Schaefer2018_100.nii", (21, 25, 20, 4))
    (folder / "Gordon333.nii").write_bytes(b"no image")
    written(folder / "Shen1.nii", (21, 25, 20))
    assert foreign_atlases(folder) == []


def test_the_table_of_an_atlas_may_leave_out_the_grid(tmp_path):
    image = written(tmp_path / "Schaefer2018_100Parcels_order_2mm.nii.gz", (21, 25, 20))
    lines = "1\t7Networks_LH_Vis_1\t120\t18\t131\t0\n2\t7Networks_RH_Vis_1\t120\t18\t132\t0\n"
    (tmp_path / "Schaefer2018_100Parcels_order.txt").write_text(lines)
    (tmp_path / "Schaefer2018_100Parcels_order_2.txt").write_text("no table")
    assert table_beside(image) == tmp_path / "Schaefer2018_100Parcels_order.txt"


def test_images_in_spaces_of_their_own_are_not_brought_to_the_grid_of_an_atlas(tmp_path):
    folder = lab(tmp_path / "lab", code=1, shape=(22, 25, 20))
    written(folder / "atlas.nii", (21, 25, 20))
    settings = tomllib.loads(propose(folder).text)
    assert settings["atlas"] == "atlas.nii"
    assert "resample" not in settings


def test_tables_beside_an_atlas_of_another_name_are_tables(tmp_path, capsys):
    """They were refused: an image lay there that was nobody's."""
    rng = np.random.default_rng(3)
    (tmp_path / "lab").mkdir()
    for m in range(2):
        header = ",".join(map(str, range(1, 31)))
        table = tmp_path / f"lab/sub-{m}.csv"
        np.savetxt(table, rng.normal(size=(40, 30)), delimiter=",", header=header, comments="")
    written(tmp_path / "lab/HarvardOxford-cort-maxprob-thr25-2mm.nii.gz", (21, 25, 20))
    assert main(["init", str(tmp_path / "lab"), "--orientation", "time_by_feature"]) == 0
    assert "matrices: 2" in (said := capsys.readouterr().out)
    assert typed_after(said) == 0
    assert 'atlas = "atlas.nii.gz"' in (tmp_path / "lab/settings.toml").read_text()
