"""Who takes part of a BIDS folder: sessions and runs by the owner, people by the site's list."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cape.data.issues import Findings
from cape.data.names import natural_key
from cape.errors import ConfigError
from cape.settings.config import Config
from cape.settings.words import parse_entities
from support.sites import discover

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


def test_numbers_in_names_count_by_their_value():
    assert sorted(["b10", "b9", "B1", "b"], key=natural_key) == ["b", "B1", "b9", "b10"]
    assert sorted(["b", "2", "a", "10"], key=natural_key) == ["2", "10", "a", "b"]
