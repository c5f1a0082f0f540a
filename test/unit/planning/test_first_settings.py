"""``cape init``: a folder of data becomes settings that its owner can read."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.cli import main
from cape.data.discovery import discover
from cape.data.issues import Findings
from cape.errors import ConfigError
from cape.planning.consortium_folder import read_settings, site_folders
from cape.planning.first_settings import propose
from support.simulation import simulate

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


def said_to_be_sites(folder: Path) -> None:
    """Confirm that folders which hold the same labels are sites."""
    (folder / "site-policy.toml").write_text('layout = ["--folders sites"]\n')


def settings(folder: Path) -> tuple[dict[str, object], str, str]:
    proposal = propose(folder)
    return tomllib.loads(proposal.text), proposal.text, "\n".join(proposal.counts)


def test_sites_side_by_side_agree_on_the_space_that_most_people_have(tmp_path):
    for label in ("sub-1", "sub-2"):
        run(tmp_path / "a", label, "T1w+MNI152NLin6Asym+MNI152NLin2009cAsym")
        run(tmp_path / "b", label, "MNI152NLin6Asym", tr=2.5)
    run(tmp_path / "b", "sub-3", "MNI152NLin6Asym", task="nback")
    # Folders a and b with the same labels may be two sessions: that is asked, not guessed.
    with pytest.raises(ConfigError, match="a, b hold the same labels; type cape people"):
        propose(tmp_path)
    said_to_be_sites(tmp_path)
    said, text, counts = settings(tmp_path)
    assert said["bids_filter"] == "task-rest_space-MNI152NLin6Asym_desc-preproc"
    assert said["space"] == "MNI152NLin6Asym"
    assert said["computation"] == "capegica"
    assert "temporal ICA removed" in text  # why
    assert (said["n_sites"], said["site_names"], said["min_sites"]) == (2, "a,b", 2)
    assert said["tr"] == 0.0  # they differ
    assert "images by repetition time: 2 s 2, 2.5 s 2" in counts
    assert "repetition times of sites: a 2 s, b 2.5 s; are these the images you mean?" in counts
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
    said_to_be_sites(tmp_path / "m")
    said, _, counts = settings(tmp_path / "m")
    assert (said["orientation"], said["n_features"]) == ("time_by_feature", 7)
    assert "matrices: 4, rows 40 to 60, columns 7" in counts
    assert settings(tmp_path / "r")[0]["computation"] == "capepca"
    for kind in ("m", "r"):
        read_settings(None, settings(tmp_path / kind)[0])
    # All of one length: nobody can tell features from time.
    for path in (tmp_path / "m").rglob("*.npy"):
        np.save(path, np.zeros((40, 7)))
    with pytest.raises(ConfigError, match="which axis is time in 4 tables with 40 rows and 7 col"):
        propose(tmp_path / "m")


def test_the_layout_of_tables_is_written_asked_for_and_filled_in(tmp_path, capsys):
    for site in "abc":
        (tmp_path / "study" / site).mkdir(parents=True)
        for m in range(4):
            rows = np.random.default_rng([ord(site), m]).standard_normal((30 + m, 3))
            # One odd header: the first file of each site says the names.
            head = "a,b,x" if (site, m) == ("a", 1) else "a,b,c"
            np.savetxt(tmp_path / "study" / site / f"sub-{m}.csv", rows, delimiter=",",
                       header=head, comments="")  # fmt: skip
    said_to_be_sites(tmp_path / "study")
    assert "columns" not in settings(tmp_path / "study")[0]
    assert settings(tmp_path / "study" / "b")[0]["columns"] == "a,b,c"
    asked = {"epsilon": 4.0, "delta": 1e-5, "computation": "capemean", "feature_space": "matrix",
             "orientation": "time_by_feature", "min_timepoints": 5, "n_sites": 3}  # fmt: skip
    file = tmp_path / "study" / "settings.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in asked.items()))
    unsaid = file.read_text()
    for more, said in (("n_features = 3\n", 0), ("", 1)):
        file.write_text(unsaid + more)
        assert (main(["validate", str(tmp_path / "study" / "b")]) != 0) == bool(said)
        text = " ".join(capsys.readouterr().out.split())
        assert text.count("CAPE-E013 setting 'n_features' is required") == said
        assert text.count("the files here have n_features = 3.") == said
    simulate(tmp_path / "study", out=tmp_path / "out", seed=1)
    used = json.loads((tmp_path / "out" / "consortium" / "settings.json").read_text())["settings"]
    assert (used["n_features"], used["columns"]) == (3, "a,b,c")
    simulate(tmp_path / "study", out=tmp_path / "out", seed=1, settings={"private": False})
    used = json.loads((tmp_path / "out" / "consortium" / "settings.json").read_text())["settings"]
    assert used["n_features"] == 3


def test_a_missing_settings_file_is_reported_as_that_and_none_is_overwritten(tmp_path, capsys):
    for site in "abc":
        run(tmp_path / "study" / site, "sub-1", "MNI152NLin2009cAsym")
    said_to_be_sites(tmp_path / "study")
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


PREPROC = "space-MNI152NLin2009cAsym_desc-preproc"


def runs_of(folder: Path) -> dict[str, list[str]]:
    """Return the runs of every person that the proposed settings list, without any finding."""
    said = settings(folder)[0]
    findings = Findings("here")
    config = read_settings(None, said).config
    listed = {s.label: [r.name for r in s.runs] for s in discover(folder, {}, config, findings)}
    assert findings.listing() == ()
    return listed


@pytest.mark.parametrize(
    ("versions", "wanted", "without"),
    [
        # Native and 2 mm: no filter can say "no resolution", so the other one is chosen ...
        (["SPACE_desc-preproc"] * 2 + ["SPACE_res-2_desc-preproc"] * 2, "res-2", ""),
        # ... unless more people have none.
        (["SPACE_desc-preproc"] * 3 + ["SPACE_res-2_desc-preproc"], "", "res-2"),
        (["SPACE_res-1_desc-preproc"] * 2 + ["SPACE_res-2_desc-preproc"] * 2, "res-2", ""),
        # Several echoes of one run, beside their combination and alone
        (["SPACE_desc-preproc"] * 2 + ["echo-1_SPACE_desc-preproc"] * 2, "", "echo-1"),
        (["echo-1_SPACE_desc-preproc"] * 2 + ["echo-2_SPACE_desc-preproc"] * 2, "echo-2", ""),
        # T1w, native and smoothed ones are other versions.
        (["SPACE_desc-preproc"] * 2 + ["space-T1w_desc-preproc", "desc-preproc"] * 2, "", ""),
    ],
)
def test_of_several_versions_of_a_run_one_is_listed(tmp_path, versions, wanted, without):
    seen: dict[str, int] = {}
    for version in versions:
        m = seen[version] = seen.get(version, 0) + 1
        name = version.replace("SPACE", "space-MNI152NLin2009cAsym")
        image(tmp_path / f"sub-{m}" / "func" / f"sub-{m}_task-rest_{name}_bold.nii.gz")
    said = settings(tmp_path)[0]
    assert (wanted in said["bids_filter"], said["bids_exclude"]) == (True, without)
    listed = runs_of(tmp_path)
    assert [len(runs) for runs in listed.values()] == [1] * len(listed)
    assert len(listed) == max(seen.values())


def test_hidden_files_are_nobody_and_a_task_of_rest_comes_first(tmp_path):
    for label in ("sub-1", "sub-2"):
        run(tmp_path, label, "MNI152NLin2009cAsym", task="nback")
        run(tmp_path, label, "MNI152NLin2009cAsym", task="restEO")
        stem = tmp_path / label / "func"
        # What a Mac leaves beside the files that it copies
        (stem / f"._{label}_task-restEO_{PREPROC}_bold.nii.gz").write_bytes(b"\0\5\x16\7")
        # Somebody's own file
        image(stem / "mean_bold.nii.gz")
    said, _, counts = settings(tmp_path)
    assert "task-restEO_" in said["bids_filter"]
    assert f"{tmp_path.name}: 2 people" in counts
    assert list(runs_of(tmp_path)) == ["sub-1", "sub-2"]
    # Also where no filter tells them apart from runs
    config = replace(read_settings(None, said).config, bids_filter="")
    findings = Findings("here")
    listed = {s.label: len(s.runs) for s in discover(tmp_path, {}, config, findings)}
    # A mean is no series, whatever filter there is.
    assert (listed, findings.listing()) == ({"sub-1": 2, "sub-2": 2}, ())


def test_links_that_were_not_fetched_say_time_and_confounds_without_names_of_bids(tmp_path):
    """They were "no list and no layout that is known": content is fetched after init."""
    data = tmp_path / "data"
    for who in ("S01", "S02", "S03"):
        stem = data / who / f"{who}_task-rest"
        stem.parent.mkdir(parents=True)
        Path(f"{stem}_desc-preproc_bold.nii.gz").symlink_to("../../.git/annex/objects/x/x.nii.gz")
        Path(f"{stem}_desc-preproc_bold.json").write_text('{"RepetitionTime": 2.2}')
        table = "\t".join(COLUMNS) + "\n" + "\t".join("0" * 7) + "\n"
        Path(f"{stem}_desc-confounds_timeseries.tsv").write_text(table)
    said, text, counts = settings(data)
    assert said["tr"] == 2.2
    assert "3 people" in text
    assert said.get("confounds") == "motion6" or said["confound_strategy"] == "motion=basic"
    assert "not readable: 3 images" in counts
    assert "confound tables: 3 of 3 runs" in counts


def test_it_says_when_one_missing_table_leaves_confounds_in_for_all(tmp_path):
    """It wrote confounds = none under a comment that they are regressed out, and said nothing."""
    for label in ("sub-1", "sub-2"):
        run(tmp_path, label, "MNI152NLin2009cAsym")
    assert "confounds = none" not in settings(tmp_path)[2]
    (tmp_path / "sub-2" / "func" / "sub-2_task-rest_desc-confounds_timeseries.tsv").unlink()
    said, text, counts = settings(tmp_path)
    assert said["confounds"] == "none"
    assert "Nothing is regressed out" in text
    assert "is regressed out of every voxel" not in text
    assert f"because sub-2_task-rest_{PREPROC}_bold.nii.gz has no table" in counts


def test_links_into_the_annex_above_are_the_sites_own_files(tmp_path):
    base, annex = tmp_path / "derivatives" / "fmriprep", tmp_path / ".git" / "annex" / "objects"
    run(base, "sub-1", "MNI152NLin2009cAsym")
    run(base, "sub-2", "MNI152NLin2009cAsym")
    annex.mkdir(parents=True)
    for path in [p for p in base.rglob("*") if p.is_file()]:
        path.rename(annex / path.name)
        path.symlink_to(annex / path.name)
    assert list(runs_of(base)) == ["sub-1", "sub-2"]
    # Tables and images whose content was not fetched are told as that, by `cape init` too.
    (annex / "sub-1_task-rest_desc-confounds_timeseries.tsv").unlink()
    (annex / f"sub-2_task-rest_{PREPROC}_bold.nii.gz").unlink()
    said, _, counts = settings(base)
    assert "not readable: 1 images" in counts
    assert "not readable: 1 tables" in counts
    findings = Findings("here")
    discover(base, {}, read_settings(None, said).config, findings)
    assert [f.code for f in findings.listing()] == ["CAPE-E108"]
    # Another place than an annex above is none of the site's.
    outside = tmp_path / "elsewhere"
    (annex / f"sub-1_task-rest_{PREPROC}_bold.nii.gz").rename(outside)
    link = base / "sub-1" / "func" / f"sub-1_task-rest_{PREPROC}_bold.nii.gz"
    link.unlink()
    link.symlink_to(outside)
    discover(base, {}, read_settings(None, said).config, findings)
    assert "CAPE-E102" in {f.code for f in findings.listing()}


def test_derivatives_below_raw_data_are_images_of_the_same_people(tmp_path):
    """The folder of a whole data set was refused: its raw images name no space."""
    for label in ("sub-1", "sub-2"):
        image(tmp_path / label / "func" / f"{label}_task-rest_bold.nii.gz")
        run(tmp_path / "derivatives" / "fmriprep", label, "MNI152NLin2009cAsym")
    said, _, counts = settings(tmp_path)
    assert said["bids_filter"] == "task-rest_space-MNI152NLin2009cAsym_desc-preproc"
    assert f"{tmp_path.name}: 2 people" in counts
    assert list(runs_of(tmp_path)) == ["sub-1", "sub-2"]


def test_no_site_is_lost_where_sites_name_their_task_otherwise(tmp_path):
    """The majority's task left a whole site without images, with no word."""
    for label in ("sub-1", "sub-2", "sub-3"):
        run(tmp_path / "site-a", label, "MNI152NLin6Asym")
        run(tmp_path / "site-b", label, "MNI152NLin6Asym", task="restingstate")
    with pytest.raises(ConfigError, match=r"site site-b has no image with task-rest_.*it has"):
        propose(tmp_path)
    both = "task-rest+restingstate_space-MNI152NLin6Asym_desc-preproc"
    said = tomllib.loads(propose(tmp_path, both).text)
    assert said["bids_filter"] == both


def test_names_of_regions_say_which_axis_is_time_where_people_do_not_differ(tmp_path):
    """All have 200 time points and 90 regions: an axis that is equal in all files says nothing."""
    X = np.random.default_rng(0).standard_normal((200, 90))
    head = ",".join(f"{side}_region{k}" for k in range(45) for side in "LR")
    for m in range(3):
        np.savetxt(tmp_path / f"sub-{m}.csv", X, delimiter=",", header=head, comments="")
    said, _, _ = settings(tmp_path)
    assert (said["orientation"], said["n_features"]) == ("time_by_feature", 90)
    for m in range(3):
        np.save(tmp_path / f"sub-{m}.npy", X)
        (tmp_path / f"sub-{m}.csv").unlink()
    with pytest.raises(ConfigError, match="neither names nor sizes show which axis is time"):
        propose(tmp_path)


def test_the_line_that_a_refusal_prints_works_when_typed(tmp_path, capsys):
    for m in range(3):
        np.save(tmp_path / f"sub-{m}.npy", np.zeros((200, 90)))
    assert main(["init", str(tmp_path)]) == 2
    assert not (tmp_path / "settings.toml").exists()
    said = " ".join(capsys.readouterr().err.split())
    for orientation, n_features in (("time_by_feature", 90), ("feature_by_time", 200)):
        assert f"--orientation {orientation}" in said
        assert main(["init", str(tmp_path), "--orientation", orientation]) == 0
        written = tomllib.loads((tmp_path / "settings.toml").read_text())
        assert (written["orientation"], written["n_features"]) == (orientation, n_features)
        (tmp_path / "settings.toml").unlink()


def test_a_terminal_is_asked_one_question(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda text: asked.append(text))
    for m in range(3):
        np.save(tmp_path / f"sub-{m}.npy", np.zeros((200, 90)))
    assert main(["init", str(tmp_path)]) == 0
    assert len(asked) == 1
    assert 'orientation = "feature_by_time"' in (tmp_path / "settings.toml").read_text()
    assert main(["init", str(tmp_path), "--json", "--out", str(tmp_path / "b.toml")]) == 2
    assert len(asked) == 1


def test_settings_that_all_sites_read_name_nobody(tmp_path):
    """Each person's folder was a site, whose name stood in settings.toml; so may columns."""
    for label in ("P101", "P102", "P103"):
        rows = "\n".join(f"{t},{t},{t}" for t in range(30))
        (tmp_path / "site").mkdir(exist_ok=True)
        (tmp_path / "site" / f"sub-{label}.csv").write_text(f"P101,P102,P103\n{rows}\n")
    with pytest.raises(ConfigError, match="would contain the label of a person here") as refused:
        propose(tmp_path / "site", ask=lambda *_: "time_by_feature")
    assert "P101" not in str(refused.value)


@pytest.mark.parametrize("where", ["in it", "beside it"])
def test_no_file_that_is_sent_names_a_person_of_the_folder_at_hand(tmp_path, capsys, where):
    """Only `cape init` looked; a line written by hand went to all sites."""
    data = tmp_path / "data"
    for label in ("P101", "P102", "P103"):
        run(data, f"sub-{label}", "MNI152NLin2009cAsym")
    file = (data if where == "in it" else tmp_path) / "settings.toml"
    (tmp_path / "checkout").mkdir()
    out, job = tmp_path / "form.json", tmp_path / "job"
    commands = (
        ["settings", str(file), "--out", str(out)],
        ["flare", "job", str(job), "--settings", str(file), "--subjects", "300"],
        ["neuroflame", str(tmp_path / "checkout"), "--settings", str(file)],
    )
    for sites, allowed in (("sub-P101,b,c", False), ("P102,b,c", False), ("a,b,c", True)):
        text = f'epsilon = 3.0\ndelta = 1e-5\nmask = "MNI152-4mm"\nsite_names = "{sites}"\n'
        file.write_text(text)
        for command in commands[: 3 if not allowed else 2]:
            assert (main(command) == 0) == allowed, capsys.readouterr()
            said = capsys.readouterr().err
            assert ("CAPE-E018" in said) != allowed
            assert "P10" not in said
        assert out.exists() == job.exists() == allowed


def test_settings_that_are_typed_or_resumed_name_nobody_of_the_folder_at_hand(
    tmp_path, capsys, monkeypatch
):
    """Without --settings, and with --resume, nothing was looked at."""
    for label in ("P101", "P102"):
        run(tmp_path / "here/data", f"sub-{label}", "MNI152NLin2009cAsym")
    (tmp_path / "away").mkdir()
    values = ("mask=MNI152-4mm", "site_names=P102,b,c", "epsilon=3", "delta=1e-5")
    typed = [word for value in values for word in ("--set", value)]
    away = ["flare", "job", str(tmp_path / "away/job"), "--subjects", "300", *typed]
    here = ["flare", "job", str(tmp_path / "here/job"), "--subjects", "300", *typed]
    resumed = ["flare", "job", str(tmp_path / "here/job"), "--resume", str(tmp_path / "away/job")]
    monkeypatch.chdir(tmp_path / "away")
    assert main(away) == 0, capsys.readouterr()
    monkeypatch.chdir(tmp_path / "here")
    for command in (here, resumed, ["neuroflame", str(tmp_path / "away"), *typed]):
        assert main(command) != 0
        said = capsys.readouterr().err
        assert "CAPE-E018" in said
        assert "P102" not in said
    assert not (tmp_path / "here/job").exists()


@pytest.mark.parametrize("command", ["simulate", "init"])
def test_an_empty_folder_is_told_as_what_it_is(tmp_path, capsys, command):
    """It named a site-error.txt that was not there, and proposed `cape init` of the same folder."""
    assert main([command, str(tmp_path)]) != 0
    said = capsys.readouterr().err
    assert "data to try it with: cape synth FOLDER" in said
    assert "site-error.txt" not in said
    assert "cape init" not in said


def test_images_of_any_names_lead_to_a_list_that_a_run_takes(tmp_path, capsys):
    """nilearn takes such files as they are; `simulate` said that the folder holds no data."""
    names = ("x1", "scan_b", "run-final(2)", "q")
    for name in names:
        image(tmp_path / f"{name}.nii.gz")
    for command in ("init", "simulate"):
        assert main([command, str(tmp_path)]) != 0
        said = " ".join(capsys.readouterr().err.split())
        assert "but neither a list nor their names say whose" in said
        assert f"type cape people {tmp_path}" in said
    table = tmp_path / "manifest.csv"
    assert main(["people", str(tmp_path)]) == 0
    line = f"Write a list: cape people {tmp_path} --write {table}, and fill in the people."
    assert line in capsys.readouterr().out
    assert main(["people", str(tmp_path), "--write", str(table)]) == 0
    rows = table.read_text().splitlines()
    filled = [rows[0], *(f"{row}S{k}" for k, row in enumerate(rows[1:]))]
    table.write_text("\n".join(filled) + "\n")
    assert "4 people" in settings(tmp_path)[1]


def test_a_folder_of_people_is_one_site_for_a_simulation(tmp_path):
    """One lab's folder was refused (E104), its people's folders having been sites once."""
    with pytest.raises(ConfigError, match=r"E016.*holds no data"):
        site_folders(tmp_path)
    for label in ("sub-1", "sub-2", "sub-3"):
        run(tmp_path, label, "MNI152NLin2009cAsym")
    assert site_folders(tmp_path) == {tmp_path.name: tmp_path.resolve()}


def test_a_file_of_another_name_at_every_site_makes_no_lab_of_them(tmp_path):
    """Four sites were one for a while: each had a file whose name says nobody."""
    for site in ("north", "south"):
        (tmp_path / site).mkdir()
        for name in ("sub-01", "sub-02", "PILOT7"):
            np.save(tmp_path / site / f"{name}.npy", np.zeros((4, 30)))
    np.save(tmp_path / "south" / "sub-03.npy", np.zeros((4, 30)))
    assert list(site_folders(tmp_path)) == ["north", "south"]


def normalised(folder: Path, code: int, *, moved: float = 0.0) -> None:
    """Write three people as SPM's tools name them, on its 6 mm grid, 60 volumes."""
    folder.mkdir()
    affine = np.array([[-6.0, 0, 0, 78], [0, 6, 0, -112], [0, 0, 6, -70], [0, 0, 0, 1]])
    for m in range(3):
        values = np.random.default_rng(m).integers(900, 1100, (27, 32, 26, 60)).astype(np.int16)
        brain = nib.Nifti1Image(values, affine)
        affine = affine + moved * np.eye(4, k=3)
        brain.set_sform(brain.affine, code)
        brain.header.set_zooms((6, 6, 6, 2.0))
        brain.to_filename(folder / f"swraS{m:02d}_rest.nii")


def test_data_of_no_known_producer_validate_after_the_one_line_that_init_prints(tmp_path, capsys):
    """It took four tries: a mask that nobody had, E117, resample=to_mask, min_timepoints."""
    normalised(tmp_path / "spm", code=2)
    assert main(["init", str(tmp_path / "spm")]) == 0
    (line,) = re.findall(r"if it is right, type: cape (.*)", capsys.readouterr().out)
    assert main(shlex.split(line)) == 0
    assert main(["validate", str(tmp_path / "spm")]) == 0
    assert "READY: 3 subjects" in capsys.readouterr().out
    said, _, _ = settings(tmp_path / "spm")
    assert (said["mask"], said["resample"], said["min_timepoints"]) == ("MNI152-6mm", "to_mask", 50)


@pytest.mark.parametrize(("code", "moved"), [(1, 0.0), (0, 0.0), (2, 3.0)])
def test_images_that_may_be_native_get_no_mask_of_a_template(tmp_path, code, moved):
    normalised(tmp_path / "raw", code, moved=moved)
    said, _, _ = settings(tmp_path / "raw")
    assert said["mask"] == "file"
