"""Relation 11: what one command proposes, the next takes; here for a lab that is alone.

"One lab alone is fine" is said on the first page.  The same data stand in a folder, and one level
below a folder, and every command is given either.
"""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from cape import cli
from test.support.file_lists import lay_out
from test.support.people import people_said

# Few people, as in a first try: with less E150 asks for more of them
EPSILON = ("--epsilon", "300", "--delta", "1e-5")
Capture = pytest.CaptureFixture[str]


def typed(seen: Capture, *words: object, code: int = 0) -> str:
    """Type a command that must end with `code`; return what it says on both streams."""
    got = cli.main([str(word) for word in words])
    told = "".join(seen.readouterr())
    assert got == code, told
    return told


def images(lab: Path) -> None:
    cli.main(["synth", str(lab.parent), "--site-sizes", "3", "--timepoints", "140", "--networks",
              "2", "--layout", "fmriprep", "--voxel", "10", "--quiet"])  # fmt: skip
    (lab.parent / "local0").rename(lab)


def series(lab: Path, regions: int = 6) -> None:
    lab.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for k in range(4):
        header = ",".join(f"region{i}" for i in range(regions))
        table = rng.laplace(size=(120, regions))
        np.savetxt(lab / f"sub-{k}.csv", table, delimiter=",", header=header, comments="")


def people(lab: Path) -> None:
    cli.main(["synth", str(lab.parent), "--preset", "volumes", "--sites", "1", "--subjects", "400",
              "--quiet"])  # fmt: skip
    (lab.parent / "local0").rename(lab)


@pytest.mark.parametrize("below", [False, True], ids=["in its folder", "one level above"])
@pytest.mark.parametrize("data", [pytest.param(images, marks=pytest.mark.long), series, people])
def test_a_lab_alone_types_what_it_is_told_to_type(tmp_path, capsys, data, below: bool) -> None:
    study = tmp_path / "study"
    data(study / "lab")
    folder = study if below else study / "lab"
    if data is not people:  # the owner of a comparison writes the question
        (study / "settings.toml").unlink(missing_ok=True)
        told = typed(capsys, "init", folder, code=2 if data is series else 0)
        if data is series:  # it says which commands answer what a table does not
            told = typed(capsys, *shlex.split(re.search(r"^  cape (init .*?)  \(", told, re.M)[1]))
        proposed = re.search(r"then: cape (validate .*)", told)[1]
        assert "READY: " in typed(capsys, *shlex.split(proposed))
    typed(capsys, "people", folder)
    # `validate` called the lab by the folder of its files, `simulate` by the one that is typed.
    told = typed(capsys, "validate", folder)
    assert "READY: " in told
    assert f"site {folder.name}" in told
    # "would be refused here" stood beside READY.
    assert ("CAPE-W168 Nobody has written a policy" in told) == (data is people)
    typed(capsys, "simulate", folder, "--out", tmp_path / "out", *EPSILON, "--quiet")
    assert (tmp_path / "out" / "consortium" / "index.html").is_file()
    assert (tmp_path / "out" / folder.name / "private").is_dir()


def test_a_site_of_a_consortium_rehearses_alone_with_the_settings_beside_it(
    tmp_path: Path, capsys: Capture
) -> None:
    """`validate` read them and said READY; `simulate` took the defaults and refused everybody."""
    study, site = tmp_path / "study", tmp_path / "study" / "local1"
    series(study / "local0")
    series(site)
    typed(capsys, "init", study, "--orientation", "time_by_feature")
    assert "READY: " in typed(capsys, "validate", site)
    assert "n_sites = 2" in (study / "settings.toml").read_text()
    told = typed(capsys, "simulate", site, "--out", tmp_path / "out", *EPSILON, "--quiet")
    assert "no settings.toml" not in told
    assert (tmp_path / "out" / "consortium" / "index.html").is_file()


@pytest.mark.parametrize(
    ("first", "regions", "says"),
    [
        ("lab", 6, r"8 people of 2 sites, with epsilon 3, .*: CAPE-E150 .* at least \d+; or"),
        ('a "lab"', 6, r"then: cape validate"),  # its TOML was broken
        ("a,b", 6, r"CAPE-E012 .* n_sites=2, and site_names has 3"),
        ("remote", 6, r"CAPE-E011 site_names=remote,ulm: .* not consortium or remote"),
        ("lab", 1, r"CAPE-E149 n_components=2: allowed 2 to 1"),
        ("lab", 1001, r"CAPE-E145 .*=1001 exceeds the limit 1000"),
    ],
)
def test_init_proposes_only_what_a_run_takes(
    tmp_path: Path, capsys: Capture, first: str, regions: int, says: str
) -> None:
    """The judge of all roads reads the file before it is written.

    All but the first wrote one that a later command refused; the first did not say what a run of
    these people would come to.
    """
    study = tmp_path / "study"
    for site in (first, "ulm"):
        series(study / site, regions)
    refused = "CAPE-E" in says and "people of" not in says
    words = ("init", study, "--orientation", "time_by_feature")
    assert re.search(says, typed(capsys, *words, code=2 if refused else 0))
    assert (study / "settings.toml").exists() is not refused
    if not refused:
        assert "READY: " in typed(capsys, "validate", study)


def test_a_budget_of_a_folder_says_what_its_run_would(tmp_path: Path, capsys: Capture) -> None:
    """It said 7.16 sd where the run said 6.6: groups that stood in the folder were assumed."""
    lab, out = tmp_path / "study" / "lab", tmp_path / "out"
    lab.parent.mkdir()
    people(lab)
    groups = [
        line.split("\t")[1] for line in (lab / "participants.tsv").read_text().split("\n")[1:-1]
    ]
    asked = ("--epsilon", "0.3", "--delta", "1e-5")
    told = typed(capsys, "budget", lab, *asked)
    (size,) = re.findall(r"only differences of ([\d.]+) sd", told)
    assert f"people counted: control {groups.count('control')}, SZ {groups.count('SZ')}." in told
    n = ("--subjects", len(groups), "--sites", 1, "--settings", lab.parent / "settings.toml")
    share = groups.count("SZ") / len(groups)
    assert f"of {size} sd" in typed(capsys, "budget", *n, *asked, "--share", share)
    assumed = typed(capsys, "budget", *n, *asked, "--share", 0.1)
    assert f"people assumed (share): control {round(0.9 * len(groups))}, SZ" in assumed
    assert f"of {size} sd" not in assumed
    refused = typed(capsys, "simulate", lab, "--out", out, *asked, code=2)
    assert f"the smallest difference that would be found is {size} sd" in refused
    assert not out.exists()  # it was left, empty


def test_settings_of_another_name_are_named_to_the_next_command(
    tmp_path: Path, capsys: Capture
) -> None:
    """`cape init LAB --out compare.toml` ended in a `validate` that read settings.toml."""
    lab, out = tmp_path / "lab", tmp_path / "our own.toml"
    series(lab)
    told = typed(capsys, "init", lab, "--orientation", "time_by_feature", "--out", out)
    words = shlex.split(re.search(r"then: cape (validate .*)", told)[1])
    assert words == ["validate", str(lab), "--settings", str(out)]
    assert "READY: " in typed(capsys, *words)


def test_people_proposes_what_takes_everybody_and_nothing_where_a_cell_is_to_be_mended(
    tmp_path: Path, capsys: Capture
) -> None:
    """Of coarse copies of a few it proposed these, which left the others without a run.

    Beside a column `withdrawn`, then an `x` in `exclude`, it printed the same three commands, none
    of which mended it, and one fault at a time; each single run counted once a copy.
    """
    stem = "sub-{n}/func/sub-{n}_task-rest_run-{r}"
    names = [f"{stem.format(n=n, r=r)}_bold.nii" for n in range(6) for r in (1, 2)]
    names += [f"{stem.format(n=n, r=r)}_res-2_bold.nii" for n in range(2) for r in (1, 2)]
    folder = lay_out(tmp_path / "lab", *names)
    faults = (("withdrawn", "x"), ("exclude", "x"), ("exclude", "run-2"))
    for (header, cell), code in zip(faults, ("CAPE-E138", "CAPE-E1", "CAPE-E105"), strict=True):
        rows = [f"sub-{n}\t{cell if n == 1 else ''}" for n in range(6)]
        (folder / "participants.tsv").write_text("\n".join([f"participant_id\t{header}", *rows]))
        refused = people_said(folder, capsys)["refused"]
        assert refused["code"].startswith(code)
        assert 'bids_exclude = "res-2"' in refused["text"]
        assert bool(refused["ways"]) is (cell == "run-2")
        told = typed(capsys, "init", folder, code=2)
        assert ("type one of" in told.lower()) is (cell == "run-2")
    first = refused["ways"][0]
    assert first == f"cape people {folder} --exclude res-2"
    assert not any("--filter" in way for way in refused["ways"])
    said = people_said(folder, capsys, *shlex.split(first)[3:])
    assert [len(person["runs"]) for person in said["people"]] == [2, 1, 2, 2, 2, 2]
    assert "1 single run is left out: participants.tsv, line 3" in typed(
        capsys, *shlex.split(first)[1:]
    )
