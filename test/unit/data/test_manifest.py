"""A manifest says which runs there are, or where it cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cape.data.issues import Findings
from cape.settings.config import Config
from support.sites import discover

IMAGES = Config(epsilon=1.0, delta=1e-5)


def site_with(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def found(base: Path, given: dict[str, object]) -> tuple[dict[str, list[str]], list[str]]:
    findings = Findings("B")
    subjects = discover(base, given, IMAGES, findings)
    labels = {subject.label: [run.name for run in subject.runs] for subject in subjects}
    return labels, [finding.private for finding in findings.listing()]


def test_a_manifest_in_the_folder_is_used_when_nothing_is_given(tmp_path):
    site_with(tmp_path, "a.nii", "b.nii", "c.nii")
    (tmp_path / "manifest.tsv").write_text(
        "\ufeff# made by hand\nFile\tsubject\trun\ttr\tn_dummy\texclude\ttrust_grid\n"
        "b.nii\tP1\t2\t2.5\t3\t0\t\n"
        "a.nii\tP1\t1\t\t\t\t1\n"
        "c.nii\tP2\t1\t\t\t1\t\n",
        encoding="utf-8",
    )
    subjects = discover(tmp_path, {}, IMAGES, Findings("B"))
    assert [subject.label for subject in subjects] == ["P1"]
    first, second = subjects[0].runs
    assert (first.name, first.tr, first.n_dummy, first.trust_grid) == ("a.nii", 0.0, 0, True)
    assert (second.name, second.tr, second.n_dummy, second.trust_grid) == ("b.nii", 2.5, 3, False)


def test_unknown_columns_warn_with_the_nearest_known_one(tmp_path):
    site_with(tmp_path, "a.nii")
    (tmp_path / "m.csv").write_text("file,notse,hair\na.nii,P1,red\n")
    labels, texts = found(tmp_path, {"manifest": "m.csv"})
    assert list(labels) == ["a"]
    said = next(text for text in texts if "CAPE-W139" in text)
    assert "'notse'; did you mean 'notes'?" in said
    assert "'hair'" in said
    # A list without a column of people proves nobody.
    assert any("CAPE-E165" in text for text in texts)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("file,participant_id,session\na.nii,P1,2\nb.nii,P1,1\n", {"P1": ["b.nii", "a.nii"]}),
        ("file,sub,participant\na.nii,sub-1,1\nb.nii,,2\n", {"2": ["b.nii"], "sub-1": ["a.nii"]}),
        ("file,sub,include\na.nii,a,0\nb.nii,b,1.0\n", {"b": ["b.nii"]}),
        *(
            (f"file,sub,exclude\na.nii,a,{mark}\nb.nii,b,n\n", {"b": ["b.nii"]})
            for mark in "1.0 y X".split()
        ),
        # A spreadsheet's columns
        ("file,sub,exclude,,\na.nii,a,,,\nb.nii,b,x,,\n", {"a": ["a.nii"]}),
    ],
)
def test_whose_a_run_is_and_whether_it_counts_is_said_in_many_ways(tmp_path, text, wanted):
    """Columns of BIDS were not used, and a mark of 1.0 left nobody out."""
    site_with(tmp_path, "a.nii", "b.nii")
    (tmp_path / "m.csv").write_text(text)
    assert found(tmp_path, {"manifest": "m.csv"}) == (wanted, [])


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("file;tr\na.nii;2\n", "E138", "looks separated by a semicolon"),
        ("a.nii\nb.nii\n", "E138", "has no header"),
        ("file,tr\na.nii,2.0 s\n", "E138", "'2.0 s'"),
        ("file,tr\na.nii,-2\n", "E138", "'-2'"),
        ("file,n_dummy\na.nii,1.5\n", "E138", "'1.5'"),
        ("file,tr\n,2\n", "E138", "names no file"),
        ("file,mask\na.nii,m.nii\n", "E139", "a column 'mask'"),
        ("file,nii\na.nii,a.nii\n", "E139", "one column 'file'"),
        ("file,subjcet\na.nii,P1\n", "E139", "call it subject"),
        ("file,patient_id\na.nii,P1\n", "E139", "call it subject"),
        ("file,id\na.nii,P1\n", "E139", "call it subject"),
        ("file,excluded\na.nii,1\n", "E139", "call it exclude"),
        ("file,exclude,exclude\na.nii,1,0\n", "E139", "two columns"),
        ("file,tr,TR\na.nii,1,2\n", "E139", "two columns"),
        ("file,participant_id,sub\na.nii,P1,P2\n", "E138", "'a.nii,P1,P2': P1 and P2"),
        ("file,participant_id\na.nii,P1\nb.nii,\n", "E138", "line 3"),
        ("file,exclude\na.nii,1\na.nii,0\nb.nii,\n", "E138", "different marks"),
        ("file,exclude\na.nii,ses-2\n", "E138", "a row is one run"),
        ("file,exclude\na.nii,motion\nb.nii,?\n", "E138", "line 3"),
        ("file,trust_grid\na.nii,maybe\n", "E138", "'maybe' in column trust_grid"),
        ("file,tr\na.nii,2000\n", "E138", "'2000'"),
        ("file,tr\na.nii,2_5\n", "E138", "'2_5'"),
        ("file,tr\na.nii,nan\n", "E138", "'nan'"),
        ("file,n_dummy\na.nii,1e300\n", "E138", "'1e300'"),
        ("file,tr\na.nii,2,5\n", "E138", "3 cells"),
        ("file,exclude\na.nii,1\n", "E104", "1 rows, none used"),
        ("# only a comment\n", "E138", "empty"),
        (b"file\n\xe9.nii\n", "E138", "byte 5"),
    ],
)
def test_a_table_that_cannot_be_read_says_where(tmp_path, text, code, part):
    site_with(tmp_path, "a.nii", "b.nii")
    (tmp_path / "m.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    _, texts = found(tmp_path, {"manifest": "m.csv"})
    matching = [t for t in texts if t.startswith(f"CAPE-{code}") and part in t]
    assert matching, texts
