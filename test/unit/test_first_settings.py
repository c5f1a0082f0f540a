"""``cape init``: a folder of data becomes settings that its owner can read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.cli import main
from cape.consortium_folder import read_settings
from cape.errors import ConfigError
from cape.planning.first_settings import propose

MM = 8.0
COLUMNS = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z", "framewise_displacement")


def image(path: Path, *, n_times: int = 12, mm: float = MM) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = nib.Nifti1Image(np.zeros((3, 4, 3, n_times), dtype=np.int16), np.diag([mm, mm, mm, 1]))
    made.header.set_xyzt_units("mm", "sec")
    made.to_filename(path)


def run(base: Path, label: str, space: str, *, task: str = "rest", tr: float = 2.0) -> None:
    stem = base / label / "func" / f"{label}_task-{task}"
    for name in space.split("+"):
        image(Path(f"{stem}_space-{name}_desc-preproc_bold.nii.gz"))
        side = {"RepetitionTime": tr}
        Path(f"{stem}_space-{name}_desc-preproc_bold.json").write_text(json.dumps(side))
    table = "\t".join(COLUMNS) + "\n" + "\n".join("\t".join("0" * 7) for _ in range(12)) + "\n"
    Path(f"{stem}_desc-confounds_timeseries.tsv").write_text(table)


def settings(folder: Path) -> tuple[dict[str, object], str, str]:
    proposal = propose(folder)
    return tomllib.loads(proposal.text), proposal.text, "\n".join(proposal.counts)


def test_sites_side_by_side_agree_on_the_space_that_most_people_have(tmp_path):
    for label in ("sub-1", "sub-2"):
        run(tmp_path / "a", label, "T1w+MNI152NLin6Asym+MNI152NLin2009cAsym")
        run(tmp_path / "b", label, "MNI152NLin6Asym", tr=2.5)
    run(tmp_path / "b", "sub-3", "MNI152NLin6Asym", task="nback")
    said, text, counts = settings(tmp_path)
    assert said["bids_filter"] == "task-rest_space-MNI152NLin6Asym_desc-preproc"
    assert said["space"] == "MNI152NLin6Asym"
    assert said["separation"] == "spatial"
    assert "temporal ICA removed" in text  # why
    assert (said["n_sites"], said["site_names"], said["min_sites"]) == (2, "a,b", 2)
    assert said["tr"] == 0.0  # they differ
    assert "images by repetition time: 2 s 2, 2.5 s 2" in counts
    assert "images by task: nback 1, rest 8" in counts
    assert "a: 2 people\nb: 3 people" in counts
    assert "epsilon" not in said
    # What is counted in people's folders is no affair of the other sites.
    assert not any(part in text for part in ("2.5", "nback 1", "rest 8", "sub-"))
    config = read_settings(None, said).config
    assert config.mask == "MNI152-8mm"  # not finer than the images


def test_a_tree_without_a_common_space_is_refused_with_what_is_there(tmp_path):
    run(tmp_path, "sub-1", "T1w")
    with pytest.raises(ConfigError, match=r"no MNI152 space \(space- is T1w\)"):
        propose(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="CAPE-E018"):
        propose(tmp_path / "empty")


def test_matrices_and_tables_of_people(tmp_path):
    for site, lengths in (("a", (40, 50)), ("b", (60, 40))):
        (tmp_path / "m" / site).mkdir(parents=True)
        for m, n in enumerate(lengths):
            np.save(tmp_path / "m" / site / f"sub-{m}.npy", np.zeros((n, 7)))
        (tmp_path / "r" / site).mkdir(parents=True)
        (tmp_path / "r" / site / "records.csv").write_text("who,a,b\nx,1,2\ny,3,4\n")
    said, _, counts = settings(tmp_path / "m")
    assert (said["orientation"], said["n_features"]) == ("time_by_feature", 7)
    assert "matrices: 4, rows 40 to 60, columns 7" in counts
    assert settings(tmp_path / "r")[0]["computation"] == "capepca"
    for kind in ("m", "r"):
        read_settings(None, settings(tmp_path / kind)[0])
    # All of one length: nobody can tell features from time.
    for path in (tmp_path / "m").rglob("*.npy"):
        np.save(path, np.zeros((40, 7)))
    said, text, _ = settings(tmp_path / "m")
    assert "CHECK THIS" in text
    assert "n_features" not in said


def test_a_missing_settings_file_is_reported_as_that_and_none_is_overwritten(tmp_path, capsys):
    for site in "abc":
        run(tmp_path / "study" / site, "sub-1", "MNI152NLin2009cAsym")
    folder = str(tmp_path / "study")
    assert main(["simulate", folder, "--out", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert "CAPE-E019 there is no settings.toml" in err
    assert "cape init" in err
    main(["validate", folder, "--fast", "--quiet"])
    assert f"write one with: cape init {folder}" in capsys.readouterr().err
    assert main(["init", folder]) == 0
    assert "chosen: task-rest_space-MNI152NLin2009cAsym_desc-preproc" in capsys.readouterr().out
    main(["validate", folder, "--fast", "--quiet"])
    assert "cape init" not in capsys.readouterr().err
    assert main(["init", folder]) == 2
    assert "exists already" in capsys.readouterr().err
