"""A manifest says which runs there are, or where it cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cape.data.discovery import discover
from cape.data.issues import Findings
from cape.settings.config import Config

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
    (tmp_path / "m.csv").write_text("file,subjcet,hair\na.nii,P1,red\n")
    labels, texts = found(tmp_path, {"manifest": "m.csv"})
    assert list(labels) == ["a"]
    assert "CAPE-W139" in texts[0]
    assert "'subjcet'; did you mean 'subject'?" in texts[0]
    assert "'hair'" in texts[0]


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
