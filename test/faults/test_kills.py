"""A run whose processes are killed again and again ends as one that was left alone.

Every party is a process per round; kills come at random moments, on both sides.  The long form has
200 rounds (``make test-trust``).
"""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cape.simulation import transports
from cape.site.ledger_file import read_ledger
from cape.site.policy import SitePolicy
from support import consortium as helper
from support.simulation import simulate

ROOT = Path(__file__).parents[2]


class Killer:
    """Stands for `subprocess.run`: starts the process, and sometimes kills it after a while."""

    def __init__(self, chance: float) -> None:
        self.chance, self.rng = chance, np.random.default_rng()
        self.started: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()
        self.lasted: dict[str, float] = {}  # s, of the last process that was left alone
        self.lock = threading.Lock()
        self.just_killed: set[bytes] = set()

    def __call__(self, command, *, input, env, **rest) -> subprocess.CompletedProcess:
        role = Path(command[-1]).stem
        with self.lock:
            # A step that is killed three times in a row ends a run, as it should.
            doomed = self.rng.random() < self.chance and input not in self.just_killed
            # At any moment of its life: on a fast computer a fixed delay comes after its end.
            delay = float(self.rng.uniform(0.0, self.lasted.get(role, 0.1)))
            self.started[role] += 1
        began = time.monotonic()
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        timer = threading.Timer(delay, process.kill)
        if doomed:
            timer.start()
        try:
            out, err = process.communicate(input)
        except BrokenPipeError:
            out, err = b"", b""
            process.wait()
        timer.cancel()
        with self.lock:
            if process.returncode < 0:
                self.killed[role] += 1
                self.just_killed.add(input)
            elif not doomed:
                self.lasted[role] = time.monotonic() - began
        return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.parametrize(
    ("computation", "asked", "releases", "chance", "fewest"),
    [
        pytest.param("capedjica", {"n_rounds": 1}, 3, 0.35, 1, id="1 round"),
        pytest.param(
            "capedjica", {"n_rounds": 200}, 202, 0.1, 40, marks=pytest.mark.trust, id="200 rounds"
        ),
        pytest.param(
            "capecontrast", {}, 20, 0.35, 5, marks=pytest.mark.trust, id="groups compared"
        ),
    ],
)
def test_killed_processes_change_neither_maps_nor_spending(
    tmp_path, monkeypatch, computation, asked, releases, chance, fewest
) -> None:
    data = helper.write_data(tmp_path / "data", computation=computation)
    settings = helper.settings_of(computation, computation=computation, **asked)
    monkeypatch.setenv("PYTHONPATH", str(helper.no_pictures(tmp_path / "hidden")))
    files: dict[str, dict[str, bytes]] = {}
    charges = {}
    killer = Killer(chance)
    for name, through in (("left alone", "memory"), ("killed", "process")):
        policy = SitePolicy.of_simulation(ledger_file=str(tmp_path / f"{name}.jsonl"))  # fmt: skip
        with monkeypatch.context() as patch, helper.without_pages():
            if through == "process":
                patch.setattr(transports, "subprocess", type("Fake", (), {"run": killer}))
            out = simulate(data, out=tmp_path / name, settings=settings, seed=7,
                           through=through, policy=policy)  # fmt: skip
        files[name] = {kept: (out / kept).read_bytes() for kept in ("results.json", "privacy.json")}
        for path in (*out.glob("*.npz"), *out.glob("*.tsv")):
            files[name][path.name] = path.read_bytes()
        charges[name] = {run.run: run.charges for run in read_ledger(Path(policy.ledger_file)).runs}
    assert sum(killer.killed.values()) >= fewest
    assert files["killed"] == files["left alone"]
    assert {"unmixing.npz", "effects.tsv"} & set(files["killed"])
    assert charges["killed"] == charges["left alone"]  # the same, in the same order, once each
    assert len(charges["killed"]) == 3
    planned = json.loads(files["killed"]["privacy.json"])["ledger"]["entries"]
    for of_site in charges["killed"].values():
        assert [(c.phase, c.round, c.mu2) for c in of_site] == [
            (entry["phase"], entry["round"], entry["mu2"]) for entry in planned
        ]
        assert len(of_site) == releases
    started, killed = sum(killer.started.values()), dict(killer.killed)
    sys.stdout.write(f"{releases} releases: {started} processes, {killed} killed\n")
