"""A typed layout says whose each file is in one way, or the site is refused.

Belongs to `cape/data/bids.py`.
"""

from __future__ import annotations

import pytest

from cape.cli import main
from test.support.file_lists import lay_out
from test.support.people import people_said, read, read_all

# Pattern, path, and (person, session, run); "": it does not fit; "two": it fits in two ways
PATHS = [
    ("{subject}/rest.nii", "ann/rest.nii", ("ann", "", "")),
    ("{subject}/rest.nii", "x/ann/rest.nii", ""),
    ("{subject}/rest.nii", "ann/restXnii", ""),
    ("./{subject}/rest.nii", "ann/rest.nii", ("ann", "", "")),
    ("{subject}/{session}/{run}.nii", "ann/pre/1.nii", ("ann", "pre", "1")),
    ("{subject}/*.nii", "ann/a.b.nii", ("ann", "", "")),
    ("*/{subject}.nii", "Kiel/ann.nii", ("ann", "", "")),
    ("{subject}/{subject}_{run}.nii", "ann/ann_1.nii", ("ann", "", "1")),
    ("{subject}/{subject}_{run}.nii", "ann/bob_1.nii", ""),
    ("sub-{subject}_x.nii", "sub-ann_x.nii", ("ann", "", "")),
    ("{subject}_x.nii", "sub-ann_x.nii", ("ann", "", "")),  # as BIDS says it, too
    ("{subject}_{session}.nii", "ann_pre.nii", ("ann", "pre", "")),
    ("{subject}_{session}.nii", "ann_1_pre.nii", "two"),
    ("{subject}{session}.nii", "01A.nii", "two"),
    ("{subject}_*.nii", "ann_1_pre.nii", "two"),
    ("*{subject}.nii", "ann.nii", "two"),
    ("{subject}.nii", "\u0623\u062d\u0645\u062f 1.nii", ("\u0623\u062d\u0645\u062f 1", "", "")),
    ("{subject}[1].nii", "ann[1].nii", ("ann", "", "")),
]


@pytest.mark.parametrize(("pattern", "path", "wanted"), PATHS)
def test_a_layout_is_the_pattern_of_the_whole_path(pattern, path, wanted, tmp_path) -> None:
    lay_out(tmp_path, path, "other/name/of/nobody.nii")
    (tmp_path / "site-policy.toml").write_text(f'layout = "{pattern}"\n')
    people, texts = read_all(tmp_path)
    if isinstance(wanted, str):
        assert any(text.startswith("E ") for text in texts), people.people
        assert wanted == "" or any(path in text and "two ways" in text for text in texts)
        return
    assert not any(text.startswith("E ") for text in texts), texts
    ((person, run),) = ((person, run) for person in people.listed for run in person.runs)
    assert (person.label.removeprefix("sub-"), run.session, run.run) == wanted
    assert [each.path for each in people.not_taken] == ["other/name/of/nobody.nii"]


@pytest.mark.parametrize(
    "pattern",
    [
        *("rest.nii", "{session}/rest.nii", "{person}/rest.nii", "../{subject}.nii"),
        *("/data/{subject}.nii", "{subject}" + "*" * 40, "{subject}" + "x" * 2000, ""),
    ],
)
def test_a_text_that_is_no_layout_is_refused_and_not_kept(pattern, tmp_path, capsys) -> None:
    lay_out(tmp_path, "ann/rest.nii")
    assert main(["people", str(tmp_path), "--layout", pattern]) == 2
    assert not (tmp_path / "site-policy.toml").exists()
    (tmp_path / "site-policy.toml").write_text(f'layout = "{pattern}"\n')
    assert main(["people", str(tmp_path)]) == 2


def test_two_files_of_one_run_are_refused(tmp_path) -> None:
    lay_out(tmp_path, "ann/a/rest.nii", "ann/b/rest.nii", "bob/a/rest.nii")
    policy = tmp_path / "site-policy.toml"
    policy.write_text('layout = "{subject}/*/rest.nii"\n')
    assert read(tmp_path) is None
    policy.write_text('layout = "{subject}/{run}/rest.nii"\n')
    assert [len(person.runs) for person in read(tmp_path) or ()] == [2, 1]
    lay_out(tmp_path, "bob/1/rest.nii", "bob/01/rest.nii")  # after a copy, as run-1 and run-01
    assert read(tmp_path) is None


def test_a_layout_is_kept_where_the_sites_own_file_is(tmp_path, monkeypatch, capsys) -> None:
    """A folder of data that cannot be written to had no layout."""
    data = lay_out(tmp_path / "data", "ann/rest.nii", "bob/rest.nii")
    own = tmp_path / "own.toml"
    own.write_text("# mine\nmin_subjects = 2\n")
    monkeypatch.setenv("CAPE_SITE_POLICY", str(own))
    before = sorted(path for path in data.rglob("*"))
    data.chmod(0o500)
    try:
        said = people_said(data, capsys, "--layout", "{subject}/rest.nii")
        assert [person["person"] for person in said["people"]] == ["ann", "bob"]
        assert len(people_said(data, capsys)["people"]) == 2
    finally:
        data.chmod(0o700)
    assert sorted(path for path in data.rglob("*")) == before
    assert "# mine\nmin_subjects = 2\n" in own.read_text()
    monkeypatch.delenv("CAPE_SITE_POLICY")
    assert people_said(data, capsys)["refused"]
