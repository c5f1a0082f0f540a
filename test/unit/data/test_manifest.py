"""A manifest says which runs there are, or where it cannot be read."""

import pytest

from test.support.file_lists import lay_out
from test.support.people import IMAGES, people_said, read_all


def table(*rows: str, header: str = "participant_id,file") -> str:
    return "\n".join([header, *rows]) + "\n"


def test_a_manifest_in_the_folder_says_all_of_a_run(tmp_path):
    lay_out(tmp_path, "a.nii", "b.nii", "c.nii", "d.nii", "conf/a.tsv")
    (tmp_path / "manifest.tsv").write_text(
        "\ufeff# made by hand\n"
        "File\tparticipant_id\tsession\trun\ttr\tn_dummy\texclude\ttrust_grid\tconfounds\n"
        "b.nii\tsub-P1\tses-2\t1\t2.5\t3\t0\t\t\n"
        "a.nii\tsub-P1\t1\t1\t\t\t\t1\tconf/a.tsv\n"
        "c.nii\tsub-P2\t1\t1\t\t\t1\t\t\n",
        encoding="utf-8",
    )
    people, texts = read_all(tmp_path)
    assert texts == []
    assert people.source == "manifest.tsv"
    (person,) = people.listed
    assert person.label == "sub-P1"
    first, second = person.runs
    assert (first.name, first.session, first.run) == ("a.nii", "1", "1")
    assert (first.tr, first.n_dummy, first.trust_grid) == (0.0, 0, True)
    assert first.confounds == tmp_path / "conf/a.tsv"
    assert (second.name, second.session, second.tr, second.n_dummy) == ("b.nii", "2", 2.5, 3)
    assert [(each.label, each.left_out) for each in people.people] == [
        ("sub-P1", ""), ("sub-P2", "manifest.tsv, line 5"),
    ]  # fmt: skip


def test_unknown_columns_are_named_and_empty_ones_are_not(tmp_path):
    lay_out(tmp_path, "a.nii")
    (tmp_path / "manifest.csv").write_text("file,participant_id,hair,,\na.nii,P1,red,,\n")
    people, texts = read_all(tmp_path)
    assert len(people.listed) == 1
    assert [text[:11] for text in texts] == ["W CAPE-W139"]
    assert "'hair'" in texts[0]


WRITTEN = {
    "byte order mark": lambda text: "\ufeff" + text,
    "Windows": lambda text: text.replace("\n", "\r\n"),
    "old Mac": lambda text: text.replace("\n", "\r"),
    "notes": lambda text: "# ours\n\n" + text.replace("\n", "\n\n"),
    "blanks": lambda text: text.replace(",", " , "),
    "quotes": lambda text: text.replace("P1", '"P1"').replace("file", '"File"'),
}


@pytest.mark.parametrize("change", WRITTEN.values(), ids=WRITTEN)
def test_a_table_is_read_as_spreadsheets_and_people_write_it(change, tmp_path):
    lay_out(tmp_path, "a.nii", "b.nii")
    text = change(table("P1,a.nii", "P2,b.nii"))
    (tmp_path / "manifest.csv").write_text(text, encoding="utf-8", newline="")
    people, texts = read_all(tmp_path)
    assert texts == []
    assert [person.label for person in people.listed] == ["P1", "P2"]


@pytest.mark.parametrize(
    ("make", "code"),
    [(lambda p: p.symlink_to(".git/annex/objects/a"), "E108"), (lambda p: p.mkdir(), "E103")],
    ids=["link", "folder"],
)
def test_a_manifest_that_is_not_here_is_no_list(make, code, tmp_path):
    lay_out(tmp_path, "sub-1_bold.nii")
    make(tmp_path / "manifest.csv")
    _, texts = read_all(tmp_path)
    assert any(text.startswith(f"E CAPE-{code}") for text in texts), texts


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("participant_id;file\nP1;a.nii\n", "E138", "looks separated by a semicolon"),
        ("P1,a.nii\nP2,b.nii\n", "E138", "has no header"),
        (table("a.nii", header="file"), "E139", "participant_id"),
        (table("P1", header="participant_id"), "E139", "file"),
        (table("P1,a.nii", header="subject,file"), "E139", "participant_id"),
        (table("P1,a.nii,a.nii", header="participant_id,file,file"), "E139", "columns"),
        (table("P1,a.nii", ",b.nii"), "E138", "line 3"),
        (table("P1,a.nii", "n/a,b.nii"), "E138", "line 3"),
        (table("P1,a.nii", "P2,"), "E138", "line 3"),
        (table("P1,a.nii", "P2,b.nii,2"), "E138", "3 cells"),
        (table("P1,a.nii,1", header="participant_id,file,mask"), "E139", "a column 'mask'"),
        *(
            (table(f"P1,a.nii,{cell}", header=f"participant_id,file,{column}"), "E138", f"'{cell}'")
            for column, cells in {
                "tr": ("2.0 s", "-2", "2000", "2_5", "nan"),
                "n_dummy": ("1.5", "1e300"),
                "trust_grid": ("maybe",),
                "exclude": ("motion",),
            }.items()
            for cell in cells
        ),
        (table("P1,a.nii,ses-2", header="participant_id,file,exclude"), "E138", "line 2"),
        (table("P1,a.nii,1", "P1,a.nii,0", "P2,b.nii,", header="participant_id,file,exclude"),
         "E138", "line 3"),
        (table("P1,a.nii,1", header="participant_id,file,exclude"), "E104", "1 row, none used"),
        (table("P1,a.nii", "P1,a.nii"), "E105", "a.nii"),
        (table("P1,a.nii", "P2,a.nii"), "E105", "a.nii"),
        (table("P1,c.nii"), "E101", "c.nii"),
        (table("P1,../a.nii"), "E102", "../a.nii"),
        ("# only a comment\n", "E138", "empty"),
        (b"participant_id,file\nP1,\xe9.nii\n", "E138", "byte"),
        (table("P1,a.nii").encode("utf-16-le"), "E138", ""),
        (table("P1,a.nii").replace(",", "\t"), "E138", "tab"),
        (table('"P1,a.nii'), "E138", ""),
        ("PK\x03\x04\x14\0\0\0", "E138", ""),
        ("version https://git-lfs.github.com/spec/v1\n", "E108", ""),
        ("", "E138", "empty"),
        (table(), "E104", ""),
        (table("P1,/data/a.nii"), "E102", "/data/a.nii"),
        (table("P1,scans\\a.nii"), "E101", "scans"),
        (table("P1,https://a.org/x.nii"), "E101", "https"),
        (table("P1,."), "E103", "folder"),
        (table(f"P1,{'a' * 300}.nii"), "E101", "letters"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_says_where(tmp_path, text, code, part):
    lay_out(tmp_path, "a.nii", "b.nii")
    (tmp_path / "manifest.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    _, texts = read_all(tmp_path)
    assert [t for t in texts if t.startswith(f"E CAPE-{code}") and part in t], texts


def test_rows_of_one_run_and_one_of_no_run_are_two_runs_of_a_person(tmp_path):
    """Who writes no session and no run states runs by rows alone."""
    lay_out(tmp_path, "a.nii", "b.nii")
    (tmp_path / "manifest.csv").write_text(table("P1,b.nii", "P1,a.nii"))
    people, texts = read_all(tmp_path)
    assert texts == []
    assert [[run.name for run in person.runs] for person in people.listed] == [["a.nii", "b.nii"]]


@pytest.mark.parametrize("runs", [("1", "1"), ("1", "01"), ("", "")])
def test_one_run_twice_is_refused(runs, tmp_path):
    lay_out(tmp_path, "a.nii", "b.nii")
    rows = [f"P1,{run},2,{name}.nii" for name, run in zip("ab", runs, strict=True)]
    (tmp_path / "manifest.csv").write_text(table(*rows, header="participant_id,run,session,file"))
    _, texts = read_all(tmp_path)
    assert any(text.startswith("E CAPE-E105") for text in texts), texts


def test_two_manifests_are_two_lists(tmp_path):
    lay_out(tmp_path, "a.nii")
    (tmp_path / "manifest.csv").write_text(table("P1,a.nii"))
    (tmp_path / "manifest.tsv").write_text(table("P1,a.nii").replace(",", "\t"))
    _, texts = read_all(tmp_path)
    assert any(text.startswith("E CAPE-E139") and "manifest.tsv" in text for text in texts), texts


def test_a_manifest_that_is_not_read_is_a_second_list(tmp_path):
    """Its marks were passed over where an engine named the files."""
    lay_out(tmp_path, "sub-01.nii")
    (tmp_path / "manifest.csv").write_text(
        table("01,sub-01.nii,1", header="participant_id,file,exclude")
    )
    for listing in ({"data": "*.nii"}, {"bids": "."}):
        _, texts = read_all(tmp_path, IMAGES, listing)
        assert any("CAPE-E139" in text and "manifest.csv" in text for text in texts), texts


def test_what_is_written_of_people_who_are_stated_states_the_same(tmp_path, capsys):
    names = [f"sub-{n}/ses-{s}/sub-{n}_ses-{s}_bold.nii" for n in (1, 2) for s in (1, 2)]
    lay_out(tmp_path, *names)
    (tmp_path / "participants.tsv").write_text("participant_id\texclude\nsub-1\tses-2\n")
    before = people_said(tmp_path, capsys)
    people_said(tmp_path, capsys, "--write", str(tmp_path / "manifest.csv"))
    after = people_said(tmp_path, capsys)
    assert after["refused"] is None
    assert after["people"] == before["people"]
