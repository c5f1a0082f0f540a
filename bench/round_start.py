"""What the start of one round costs: CPU time of ``local.py`` over that of ``import numpy``.

COINSTAC's first version starts a new process for every party in every round, 47 times for a site of
a default run.  Plays a run of three small sites until the first `iterate` round, then lets one site
answer that round again and again from the same folders, in turn with ``python -c "import numpy"``.
Bytecode is compiled beforehand and BLAS has one thread.  The figure is the ratio of the medians of
user and system time of the processes.

    python bench/round_start.py [--repeats 15] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cape.simulation.transports import make_places
from cape.site.policy import SitePolicy

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = 2.0
"""Largest ratio; exit 1 above it."""
SITES = ("site0", "site1", "site2")
PHASE = "iterate"
SETTINGS = {
    "computation": "capedjica", "n_components": 3, "min_timepoints": 10,
    "feature_space": "matrix", "n_features": 12,
    "detrend": "none",
    "epsilon": 8.0, "delta": 1e-3, "accept_low_quality": True, "n_sites": 3,
}  # fmt: skip
POLICY = SitePolicy.of_simulation(simulation_seed=7)
COMMANDS = {
    "numpy": ["-c", "import numpy"],
    "imports": ["-c", "import cape.engines.coinstac.computation, cape.computations.capedjica"],
    "round": [str(ROOT / "local.py")],
}


def environment(work: Path, party: str) -> dict[str, str]:
    """The environment of a party: its own policy, one thread, kept bytecode."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    policy = {"CAPE_SITE_POLICY": str(work / party / "site-policy.toml")}
    return {**kept, **threads, **policy, "PYTHONPATH": str(ROOT)}


def make_sites(work: Path) -> None:
    """Write the data and the policies of all parties."""
    rng = np.random.default_rng(5)
    common = rng.standard_normal((12, 3))
    make_places((*SITES, "remote"), POLICY, work)
    for site in SITES:
        for m in range(4):
            noise = 0.2 * rng.standard_normal((12, 60))
            values = common @ rng.laplace(size=(3, 60)) + noise
            np.save(work / site / "base" / f"sub-{m}.npy", values)


def document(work: Path, party: str, message: Any, cache: Any, iteration: int) -> bytes:
    """One document as the engine sends it."""
    places = {
        f"{name}Directory": str(work / party / name) for name in ("output", "cache", "transfer")
    }
    state = {**places, "baseDirectory": str(work / party / "base"), "clientId": party}
    whole = {"input": message, "cache": cache, "state": {**state, "iteration": iteration}}
    return json.dumps(whole).encode()


def answer(role: str, work: Path, party: str, text: bytes) -> dict[str, Any]:
    """Start a party for one round."""
    done = subprocess.run(
        [sys.executable, str(ROOT / f"{role}.py")],
        input=text, capture_output=True, env=environment(work, party), check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    decoded: dict[str, Any] = json.loads(done.stdout)
    return decoded


def play_until(phase: str, work: Path) -> bytes:
    """Play a run until `phase` opens; returns the document that its first site gets then."""
    message: Any = SETTINGS
    caches: dict[str, Any] = {party: {} for party in (*SITES, "remote")}
    iteration = 0
    while message.get("phase") != phase:
        iteration += 1
        inbox = {}
        for site in SITES:
            text = document(work, site, message, caches[site], iteration)
            reply = answer("local", work, site, text)
            inbox[site], caches[site] = reply["output"], reply["cache"]
        reply = answer("remote", work, "remote",
                       document(work, "remote", inbox, caches["remote"], iteration))  # fmt: skip
        message, caches["remote"] = reply["output"], reply["cache"]
    return document(work, SITES[0], message, caches[SITES[0]], iteration + 1)


def cpu_seconds(command: list[str], env: Mapping[str, str], text: bytes) -> float:
    """User and system time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], input=text, capture_output=True, env=env, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(work: Path, repeats: int) -> dict[str, float]:
    """Median CPU seconds of each command; a folder that answered is put back before the next."""
    make_sites(work)
    text = play_until(PHASE, work)
    home, kept = work / SITES[0], work / "as-it-was"
    shutil.copytree(home, kept)
    env = environment(work, SITES[0])
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for i in range(repeats + 1):
        for name, command in COMMANDS.items():
            shutil.rmtree(home)
            shutil.copytree(kept, home)
            spent = cpu_seconds(command, env, text)
            if i:  # the first of each compiles bytecode and fills the file cache
                seconds[name].append(spent)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="two repeats; no ratio is too large")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        median = measure(Path(folder), 2 if given.quick else given.repeats)
    ratio = median["round"] / median["numpy"]
    if given.json:
        milliseconds = {f"{name}_ms": round(1000 * value, 1) for name, value in median.items()}
        figures = {"ratio": round(ratio, 3), "allowed": ALLOWED}
        print(json.dumps({**milliseconds, **figures}))
    else:
        for name, value in median.items():
            print(f"{name:8} {1000 * value:7.1f} ms CPU   {value / median['numpy']:5.2f} x numpy")
    return int(ratio > ALLOWED and not given.quick)


if __name__ == "__main__":
    raise SystemExit(main())
