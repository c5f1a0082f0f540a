"""First settings of a DataLad clone whose images were not fetched: the sidecars are there.

Belongs to `cape/planning/first_settings.py`.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from cape.planning.first_settings import propose

MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")


def clone(folder: Path) -> Path:
    for label in ("sub-01", "sub-02", "sub-03"):
        stem = folder / label / "func" / f"{label}_task-rest"
        image = f"{stem}_space-MNI152NLin2009cAsym_desc-preproc_bold"
        stem.parent.mkdir(parents=True)
        Path(f"{image}.json").write_text(json.dumps({"RepetitionTime": 1.5}))
        columns = {name: {"Description": "motion"} for name in MOTION}
        Path(f"{stem}_desc-confounds_timeseries.json").write_text(json.dumps(columns))
        for name in (f"{image}.nii.gz", f"{stem}_desc-confounds_timeseries.tsv"):
            Path(name).symlink_to(f"../../.git/annex/objects/aa/{label}")
    return folder


def test_time_and_confounds_of_images_that_were_not_fetched_come_from_their_sidecars(tmp_path):
    """They were tr = 0 and confounds = none, which a run took for the owner's wish."""
    proposal = propose(clone(tmp_path / "study"))
    said = tomllib.loads(proposal.text)
    assert said["tr"] == 1.5
    assert "motion" in str(said.get("confound_strategy", "")) + str(said.get("confounds", ""))
    assert "not readable: 3 images; cape validate says why" in proposal.counts


def test_a_sidecar_that_is_none_says_nothing(tmp_path):
    folder = clone(tmp_path / "study")
    for path in folder.rglob("*.json"):
        path.write_text("[1, 2")
    said = tomllib.loads(propose(folder).text)
    assert not said.get("tr")
    assert said["confounds"] == "none"
