"""A run whose processes are killed again and again ends as one that was left alone.

Every party is a process per round; kills come at random moments, on both sides.  The long form has
200 rounds (``make test-trust``).
"""

from __future__ import annotations

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
from cape.simulation.simulate import simulate
from cape.site.ledger_file import read_ledger
from cape.site.policy import SitePolicy
from support import consortium as helper

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
    ("rounds", "chance", "fewest"),
    [
        pytest.param(1, 0.35, 1, id="1 round"),
        pytest.param(200, 0.1, 40, marks=[pytest.mark.trust], id="200 rounds"),
    ],
)
def test_killed_processes_change_neither_maps_nor_spending(
    tmp_path, monkeypatch, rounds, chance, fewest
) -> None:
    data = helper.write_data(tmp_path / "data")
    settings = helper.settings_of("capedjica", n_rounds=rounds)
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
        with np.load(out / "unmixing.npz", allow_pickle=False) as stored:
            files[name] = {key: stored[key].tobytes() for key in stored.files}
        files[name]["privacy"] = (out / "privacy.json").read_bytes()
        charges[name] = {run.run: run.charges for run in read_ledger(Path(policy.ledger_file)).runs}
    assert sum(killer.killed.values()) >= fewest
    assert files["killed"] == files["left alone"]
    assert charges["killed"] == charges["left alone"]  # the same, in the same order, once each
    assert len(charges["killed"]) == 3
    planned = json.loads(files["killed"]["privacy"])["ledger"]["entries"]
    for of_site in charges["killed"].values():
        assert [(c.phase, c.round, c.mu2) for c in of_site] == [
            (entry["phase"], entry["round"], entry["mu2"]) for entry in planned
        ]
        assert len(of_site) == rounds + 2
    sys.stdout.write(
        f"{rounds} rounds: {sum(killer.started.values())} processes, {dict(killer.killed)} killed\n"
    )
