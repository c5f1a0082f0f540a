"""Which folders are sites, and what is said of them."""

from pathlib import Path

import pytest

from cape.cli import main
from cape.data.folders import sites_below
from cape.errors import ConfigError
from test.support.file_lists import lay_out
from test.support.people import people_said, read

LAYOUT = 'layout = "{subject}/rest.nii"\n'
# Files of a folder, and the sites below it; none: the folder is one site
FOLDERS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("sub-01/func/sub-01_bold.nii", "sub-02/func/sub-02_bold.nii"), ()),
    (("sub-01_bold.nii", "a/sub-02_bold.nii"), ()),
    (("derivatives/fmriprep/sub-01/sub-01_bold.nii",), ()),
    (("rawdata/sub-01/sub-01_bold.nii", "sourcedata/x.nii"), ()),
    (("manifest.csv", "a/sub-01_bold.nii", "b/sub-01_bold.nii"), ()),
    (("participants.tsv", "a/sub-01_bold.nii"), ()),
    (("records.csv", "a/b.nii"), ()),
    (("site-policy.toml", "a/rest.nii", "b/rest.nii"), ()),
    (("a/sub-01_bold.nii", "a/sub-02_bold.nii", "b/sub-01_bold.nii"), ("a", "b")),
    (("a/sub-01/func/sub-01_bold.nii", "b/manifest.csv", "c/records.csv"), ("a", "b", "c")),
    (("a/derivatives/fmriprep/sub-01/sub-01_bold.nii", "b/participants.tsv"), ("a", "b")),
    (("a/sub-01_bold.nii", "b/site-policy.toml", "b/x/rest.nii"), ("a", "b")),
    # One folder alone is one lab; whoever holds data beside sites is a site that is refused.
    (
        ("local0/sub-01/sub-01_bold.nii", "local0/sub-02/sub-02_bold.nii", "settings.toml"),
        ("local0",),
    ),
    (("a/sub-01_bold.nii", "a/sub-02_bold.nii", "b/ann/rest.nii"), ("a", "b")),
    (("a/sub-01_bold.nii", "a/sub-02_bold.nii", "b/ann/scan.HEAD"), ("a", "b")),
    # No folder states people: the folder is one site, which its own check refuses.
    (("ann/rest.nii", "bob/rest.nii"), ()),
    (("pre/P01.nii", "post/P01.nii"), ()),
    # Folders of one person each, or of one visit
    (("01_v1/sub-01_bold.nii", "01_v2/sub-01_bold.nii", "02_v1/sub-02_bold.nii"), ()),
    # Beside sites: results, programs, hidden folders
    (
        (
            *(
                "a/sub-01_bold.nii",
                "a/sub-02_bold.nii",
                "b/sub-01_bold.nii",
                ".git/x.nii",
                "code/run.py",
                "logs/x.nii",
            ),
            *("out/group_maps.nii.gz", "out/results.json", "r/results.json", "r/x.nii"),
        ),
        ("a", "b"),
    ),
]


@pytest.mark.parametrize(("names", "sites"), FOLDERS)
def test_a_folder_is_a_site_if_it_states_people_itself(names, sites, tmp_path) -> None:
    lay_out(tmp_path, *names)
    for policy in tmp_path.rglob("site-policy.toml"):
        policy.write_text(LAYOUT)
    # One lab is called as the folder that is typed.
    called = (tmp_path.name,) if len(sites) == 1 else sites
    assert sites_below(tmp_path) == {
        name: tmp_path / top for name, top in zip(called, sites, strict=True)
    }


def bids(folder: Path, *labels: str) -> Path:
    return lay_out(folder, *(f"sub-{n}/func/sub-{n}_task-rest_bold.nii" for n in labels))


@pytest.mark.parametrize(
    ("second", "line"),
    [(("01", "02", "04"), "2 labels recur"), (("01", "5"), "1 label recurs"), (("4", "5"), "")],
)
def test_waves_below_one_folder_are_said_in_one_line(second, line, tmp_path, capsys) -> None:
    """wave1/sub-01 and wave2/sub-01 were two sites and two people without a word."""
    bids(tmp_path / "wave1", "01", "02", "03")
    bids(tmp_path / "wave2", *second)
    said = people_said(tmp_path, capsys)
    people = [(each["site"], each["person"]) for each in said["people"]]
    assert people[:3] == [("wave1", "01"), ("wave1", "02"), ("wave1", "03")]
    assert people[3:] == [("wave2", label) for label in second]
    paths = [run["path"] for each in said["people"] for run in each["runs"]]
    assert all((tmp_path / path).is_file() for path in paths)
    assert main(["people", str(tmp_path)]) == 0
    told = [
        text for text in capsys.readouterr().out.replace("\n", " ").split(";") if "recur" in text
    ]
    assert len(told) == bool(line)
    assert not line or (line in told[0] and "different people" in told[0])


def test_a_manifest_above_waves_says_that_they_are_the_same_people(tmp_path, capsys) -> None:
    rows = ["participant_id,session,file"]
    for wave in (1, 2):
        bids(tmp_path / f"wave{wave}", "01", "02")
        name = "wave{0}/sub-{1}/func/sub-{1}_task-rest_bold.nii"
        rows += [f"{label},{wave},{name.format(wave, label)}" for label in ("01", "02")]
    (tmp_path / "manifest.csv").write_text("\n".join(rows) + "\n")
    said = people_said(tmp_path, capsys)
    assert said["refused"] is None
    assert [(each["person"], len(each["runs"])) for each in said["people"]] == [
        ("01", 2),
        ("02", 2),
    ]


def test_one_lab_below_a_folder_is_one_lab(tmp_path, capsys) -> None:
    bids(tmp_path / "lab" / "local0", "01", "02")
    said = people_said(tmp_path / "lab", capsys)
    people = [("", "01"), ("", "02")]  # as in its own folder
    assert [(each["site"], each["person"]) for each in said["people"]] == people
    assert said["refused"] is None


def test_a_site_that_states_nobody_is_refused_by_itself(tmp_path, capsys) -> None:
    bids(tmp_path / "a", "01", "02")
    lay_out(tmp_path, "b/ann/rest.nii", "b/bob/rest.nii")
    said = people_said(tmp_path, capsys)
    assert [each["person"] for each in said["people"]] == ["01", "02"]
    assert said["refused"]["ways"] == [
        f"cape people {tmp_path}/b --layout ann/rest.nii",
        f"cape people {tmp_path}/b --write {tmp_path}/b/manifest.csv",
    ]
    assert not people_said(tmp_path / "b", capsys, "--layout", "{subject}/rest.nii")["refused"]
    assert people_said(tmp_path, capsys)["refused"] is None


@pytest.mark.parametrize("names", [(), ("notes.md",), ("a/b/readme.md",)])
def test_a_folder_without_data_is_told_as_that(names, tmp_path, typed) -> None:
    lay_out(tmp_path, *names)
    told = typed("people", str(tmp_path), code=2)
    assert "CAPE-E104" in told.out + told.err


def test_a_file_of_a_person_beside_folders_of_sites_is_refused(tmp_path) -> None:
    """One stray file made one site of two, whose people were one list without a word."""
    lay_out(tmp_path, *(f"{site}/sub-0{n}_bold.nii" for site in "ab" for n in (1, 2)))
    assert list(sites_below(tmp_path)) == ["a", "b"]
    lay_out(tmp_path, "sub-09_bold.nii")
    with pytest.raises(ConfigError, match=r"sub-09_bold\.nii lies beside"):
        sites_below(tmp_path)


def test_the_file_of_the_variable_says_nothing_of_folders_that_have_their_own(
    tmp_path, monkeypatch
) -> None:
    """Its layout was taken for that of every folder with a policy."""
    own = tmp_path / "own.toml"
    own.write_text(LAYOUT)
    monkeypatch.setenv("CAPE_SITE_POLICY", str(own))
    data = lay_out(tmp_path / "data", "ann/rest.nii", "bob/rest.nii")
    (data / "ann" / "site-policy.toml").write_text("veto = true\n")
    assert sites_below(data) == {}
    assert [person.label for person in read(data) or ()] == ["ann", "bob"]


def test_a_table_that_a_site_names_and_lacks_is_told(tmp_path, capsys) -> None:
    """`cape people` broke, where no series are read."""
    lay_out(tmp_path, "notes.md")
    (tmp_path / "site-policy.toml").write_text('tables = ["volumes.tsv"]\n')
    refused = people_said(tmp_path, capsys)["refused"]
    assert "volumes.tsv, of tables in site-policy.toml" in refused["text"]


def test_results_in_the_folder_of_a_person_leave_nobody_out(tmp_path) -> None:
    lay_out(tmp_path, "sub-01/sub-01_bold.nii", "sub-02/sub-02_bold.nii", "sub-02/results.json")
    assert [person.label for person in read(tmp_path) or ()] == ["sub-01", "sub-02"]
