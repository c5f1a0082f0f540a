"""NeuroFLAME's own framework, where a checkout of its boilerplate is given.

    CAPE_NEUROFLAME=/path/to/checkout CAPE_NEUROFLAME_PYTHON=/path/to/venv/bin/python \
        python -m pytest test/e2e/test_neuroflame.py

The Python has the boilerplate's `requirements.txt`, and this package, installed.  The checkout has
no licence, so nothing of it is here; it is copied, and stays as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cape.neuroflame import author_files
from cape.report import files as report_files
from support.flare import contents

ROOT = Path(__file__).parents[2]
CHECKOUT = os.environ.get("CAPE_NEUROFLAME", "")
PYTHON = os.environ.get("CAPE_NEUROFLAME_PYTHON", "")
SITES = ("site1", "site2", "site3")
POLICY = (
    "simulation_seed = 11\nallow_not_private = true\nprivate_results = true\n"
    'ledger_file = "none"\nmax_total_epsilon = 0.0\n'
)
# What `simulate` adds to results of its own: that all sites were on one computer.
MARKED = ("index.html", "methods.md", "results.json")
MEMORY = """
import json, sys
from pathlib import Path
from cape.simulation.simulate import simulate
from cape.site.policy import SitePolicy
settings = json.loads(Path(sys.argv[1]).read_text())
policy = SitePolicy.of_simulation(private_results=True)
simulate(Path(sys.argv[2]), out=Path(sys.argv[3]), seed=11, policy=policy,
         settings={**settings, "site_names": ""})
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHECKOUT and PYTHON), reason="CAPE_NEUROFLAME names no checkout"),
]


def test_a_run_in_its_simulator_leaves_the_bytes_of_memory(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(CHECKOUT, checkout, ignore=shutil.ignore_patterns(".git"))
    author_files.lay(checkout)
    data = tmp_path / "data"
    for number, site in enumerate(SITES):
        source = ROOT / "test" / "input" / f"local{number}" / "simulatorRun"
        # The shipped policy of the demonstration is not of this run, which has a seed.
        shutil.copytree(source, data / site, ignore=shutil.ignore_patterns("*.toml"))
        target = checkout / "test_data" / site
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(data / site, target)
        (target / "site-policy.toml").write_text(POLICY)
    called(checkout, "makeJob.py", ",".join(SITES))
    called(checkout, "debugger.py", "./job", "-n", "3", "-c", ",".join(SITES), "-t", "3")
    parameters = checkout / "test_data" / "server" / "parameters.json"
    memory = tmp_path / "memory"
    called(tmp_path, "-c", MEMORY, str(parameters), str(data), str(memory))
    wanted = contents(memory / "consortium")
    for party in ("server", *SITES):
        found = contents(checkout / "test_output" / "simulate_job" / party)
        for name, content in wanted.items():
            if name not in MARKED:
                assert found[name] == content, f"{party}: {name}"
        results = json.loads(found["results.json"])
        ours = report_files.read_json(memory / "consortium" / "results.json")
        assert {**results, "simulation": True} == ours


def called(folder: Path, *words: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PYTHONPATH"] = str(folder / "app" / "code")
    environment["PATH"] = f"{Path(PYTHON).parent}:{environment['PATH']}"
    done = subprocess.run(
        [PYTHON, "-W", "ignore", *words], cwd=folder, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
