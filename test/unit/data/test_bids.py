"""Who takes part of a BIDS folder: sessions and runs by the owner, people by the site's list."""

from dataclasses import replace
from pathlib import Path

import pytest

from cape.cli import main
from cape.data.issues import Findings
from cape.data.names import natural_key
from cape.errors import ConfigError
from cape.settings.config import Config
from cape.settings.words import parse_entities
from support.sites import discover
from test.support.file_lists import lay_out
from test.support.people import people_said, read, read_all

CONFIG = Config(epsilon=1.0, delta=1e-5, bids_filter="task-rest_space-MNI152NLin6Asym")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for subject in ("01", "02", "03"):
        for session in ("1", "2", "3"):
            folder = tmp_path / f"sub-{subject}" / f"ses-{session}" / "func"
            folder.mkdir(parents=True)
            for task in ("rest", "nback"):
                run = f"sub-{subject}_ses-{session}_task-{task}_space-MNI152NLin6Asym_bold.nii.gz"
                (folder / run).write_bytes(b"x")
    return tmp_path


def listed(base: Path, config: Config) -> tuple[dict[str, list[str]], list[str]]:
    findings = Findings("B")
    subjects = discover(base, {}, config, findings)
    found = {s.label: [run.name.split("/")[1] for run in s.runs] for s in subjects}
    return found, [finding.code for finding in findings.listing()]


def test_the_owner_names_sessions_and_tasks(base):
    config = replace(CONFIG, bids_filter="task-rest_ses-1+3_space-MNI152NLin6Asym")
    assert listed(base, config) == (
        {f"sub-{n}": ["ses-1", "ses-3"] for n in ("01", "02", "03")}, []
    )  # fmt: skip
    both = replace(CONFIG, bids_filter="task-rest+nback_ses-2_space-MNI152NLin6Asym")
    assert listed(base, both)[0]["sub-02"] == ["ses-2", "ses-2"]
    assert parse_entities("ses-1+2_run-1") == (("ses", "1+2"), ("run", "1"))
    for wrong in ("ses-1+", "ses-+1", "ses-1++2", "ses-1 2"):
        with pytest.raises(ConfigError):
            parse_entities(wrong)


def test_settings_leave_runs_out(base):
    """Sessions, tasks and runs could be left out by deleting files only."""
    everything = replace(CONFIG, bids_filter="space-MNI152NLin6Asym")
    config = replace(everything, bids_exclude="task-nback,ses-2+3_task-rest")
    assert listed(base, config)[0]["sub-01"] == ["ses-1"]
    for image in base.glob("sub-02/ses-[12]/func/*task-rest*"):
        image.unlink()
    # Of whom the owner's settings leave nothing over is still counted, and adds zeros.
    found, codes = listed(base, replace(CONFIG, bids_exclude="ses-3"))
    assert (found["sub-01"], found["sub-02"]) == (["ses-1", "ses-2"], [])
    assert codes == ["CAPE-W104"]
    for wrong in ("ses", "ses-1 2", "ses-1,,x", "sub-01", "ses-1,task-rest_sub-01"):
        with pytest.raises(ConfigError, match="bids_exclude"):
            replace(CONFIG, bids_exclude=wrong).check()


def test_two_echoes_are_one_run_in_two_versions(tmp_path):
    folder = tmp_path / "sub-01" / "func"
    folder.mkdir(parents=True)
    for echo in (1, 2):
        name = f"sub-01_task-rest_echo-{echo}_space-MNI152NLin6Asym_bold.nii.gz"
        (folder / name).write_bytes(b"x")
    table = folder / "sub-01_task-rest_desc-confounds_timeseries.tsv"
    table.write_text("a\n1\n")
    findings = Findings("B", strict=True)
    discover(tmp_path, {}, CONFIG, findings)
    (refused,) = findings.listing()
    assert (refused.code, refused.severity) == ("CAPE-E105", "E")
    assert 'bids_filter = "echo-1" or bids_filter = "echo-2"' in refused.private
    findings = Findings("B")
    config = replace(CONFIG, bids_filter=CONFIG.bids_filter + "_echo-2")
    (one,) = discover(tmp_path, {}, config, findings)
    assert [run.confounds for run in one.runs] == [table]  # of all echoes


def test_numbers_in_names_count_by_their_value():
    assert sorted(["b10", "b9", "B1", "b"], key=natural_key) == ["b", "B1", "b9", "b10"]
    assert sorted(["b", "2", "a", "10"], key=natural_key) == ["2", "10", "a", "b"]


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
