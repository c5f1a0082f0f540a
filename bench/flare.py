"""Milliseconds of an exchange over FLARE with mTLS, beside a bare Collab echo of the same bytes.

    python bench/flare.py [--rounds 40] [--quick] [--json]

A server and four sites as processes of their own on the loopback.  In one job the run is played,
and after each exchange its message once more between methods that only send bytes back, so both
meet the same load.  What is ours is CPU time: of the aggregator, and of the sites, which share the
cores; what a site waits for its disk is neither.  TMPDIR says which disk that is.  Beside other
programs only `chrt -r 5 python bench/flare.py` measures this one.  Needs nvflare.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))  # `support`

from cape.engines.flare.job import SERVER, JobPlan, new_run, write_job
from cape.engines.flare.site_file import SERVER_CLASSES, SITE_CLASSES
from cape.site.policy import SitePolicy
from support import consortium as helper
from support import federation as kits

POLICY = SitePolicy.of_simulation(simulation_seed=1)
CLIENT = "app/config/config_fed_client.json"
ECHO = ("flare_echo.Site", "flare_echo.Aggregator")


def swap(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(f'"{old}"', f'"{new}"'))


def measure(rounds: int, n_components: int) -> list[dict]:
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top)
        arrays = helper.datasets() | {"local9": helper.subjects(5, seed=99)}
        data = helper.write_data(folder / "data", arrays)
        (folder / "fed").mkdir()
        federation = kits.Federation(folder / "fed", data, POLICY)
        federation.environment["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent)
        for party in (kits.SERVER, *federation.sites):
            resources = federation.kits / party / "local" / "resources.json"
            for old, new in zip((SITE_CLASSES[0], SERVER_CLASSES[0]), ECHO, strict=True):
                swap(resources, old, new)
        settings = helper.settings_of(
            "capedjica", n_rounds=rounds, n_components=n_components, n_sites=len(arrays)
        )
        job = folder / "job"
        write_job(job, JobPlan(run=new_run(), settings=settings))
        swap(job / CLIENT, SITE_CLASSES[0], ECHO[0])
        swap(job / SERVER, SERVER_CLASSES[0], ECHO[1])
        out = federation.kits / kits.SERVER / "bench.json"
        try:
            federation.start()
            federation.connected()
            federation.submit(job)
            federation.wait(out.is_file, 600)
        finally:
            federation.stop()
        return json.loads(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--components", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="three rounds")
    given = parser.parse_args()
    if given.quick:
        given.rounds = 3
    # Neither the first exchange, which reads data, nor the last, which writes the results.
    rows = measure(given.rounds, given.components)[1:-1]
    cores = min(os.cpu_count() or 1, len(rows[0]["site_cpu"]))
    ours = [r["aggregator_cpu"] - r["echo_cpu"] + sum(r["site_cpu"]) / cores for r in rows]
    found = {
        "exchanges": len(rows),
        "run_ms": 1000 * statistics.median(r["run"] for r in rows),
        "echo_ms": 1000 * statistics.median(r["echo"] for r in rows),
        "our_cpu_ms": 1000 * statistics.median(ours),
        "engine_ms": 1000 * statistics.median(r["asked"] - max(r["site_wall"]) for r in rows),
        # What other programs and the disk keep a site waiting
        "site_ms": 1000 * statistics.median(statistics.mean(r["site_wall"]) for r in rows),
        "site_cpu_ms": 1000 * statistics.median(statistics.mean(r["site_cpu"]) for r in rows),
        "bytes": statistics.median(sum(r["bytes"]) for r in rows),
        "load": os.getloadavg()[0],
    }
    found["allowed_ms"] = 1.3 * found["echo_ms"] + found["our_cpu_ms"]
    if given.json:
        print(json.dumps(found))
        return
    print("{exchanges} exchanges of 4 sites, {bytes:.0f} bytes there and back".format(**found))
    print("run {run_ms:.1f} ms, echo {echo_ms:.1f} ms, our CPU {our_cpu_ms:.1f} ms".format(**found))
    print("a site {site_ms:.1f} ms, {site_cpu_ms:.1f} of them CPU".format(**found))
    # Also where other programs want the cores: what is left of a call without its slowest site.
    print("a call without the time of its slowest site: {engine_ms:.1f} ms".format(**found))
    print("1.3 x echo + our CPU = {allowed_ms:.1f} ms (load {load:.1f})".format(**found))


if __name__ == "__main__":
    main()
