"""Errors of runs in memory and from Python carry their cause; no text names a file not there."""

import numpy as np
import pytest

import cape
from cape.cli import main
from cape.errors import DataError
from cape.lab.synthetic.consortium import Request, write_consortium
from support.simulation import simulate


@pytest.fixture
def study(tmp_path):
    write_consortium(tmp_path / "s", Request(site_sizes=(4, 3, 3), n_timepoints=30, n_networks=2))
    # A name that leads nowhere: the site's list cannot be used.
    (tmp_path / "s" / "local1" / "manifest.csv").write_text(
        "participant_id,file\n77,sub-77_bold.nii.gz\n"
    )
    return tmp_path / "s"


def test_a_run_in_memory_says_why_and_leaves_the_file_that_it_names(study, tmp_path, capsys):
    given = {"private": False, "n_rounds": 2}
    with pytest.raises(DataError) as stop:
        simulate(study, out=tmp_path / "out", settings=given)
    assert "sub-77_bold.nii.gz" in str(stop.value)
    assert stop.value.public == (
        "CAPE-E101 A list, mask or table of site local1 cannot be used; see its site-error.txt."
    )
    kept = tmp_path / "out" / "local1" / "site-error.txt"
    assert "sub-77_bold.nii.gz" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0
    assert not (tmp_path / "out" / "local0" / "site-error.txt").exists()
    words = [f"--set={name}={value}" for name, value in given.items()]
    assert main(["simulate", str(study), "--out", str(tmp_path / "two"), *words]) == 1
    assert "sub-77_bold.nii.gz" in capsys.readouterr().err
    assert (tmp_path / "two" / "local1" / "site-error.txt").is_file()


def test_arrays_of_a_python_program_have_no_file_to_look_at():
    rng = np.random.default_rng(1)
    sites = {name: [rng.standard_normal((40, 8)) for _ in range(3)] for name in "abc"}
    sites["b"] = [np.full((40, 8), np.nan) for _ in range(3)]
    with pytest.raises(DataError) as stop:
        cape.Consortium(sites).run(
            epsilon=8, delta=1e-5, settings={"n_components": 2, "min_timepoints": 20}
        )
    assert "NaN everywhere" in str(stop.value)
    assert "site-error.txt" not in str(stop.value)
