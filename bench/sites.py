"""What a run costs as the number of sites grows: time, bytes and memory of each party.

    python bench/sites.py [--sites 4,16,50,200,500] [--ways all-sites,secagg] [--json]
    python bench/sites.py --flare 10,50        # in FLARE's simulator (extra nvflare)
    python bench/sites.py --lost 200 [--rounds 40]   # FLARE's rounds, sites in processes

Whole runs of `capedjica` on matrices, all parties in one process.  A party's memory is what its
code allocates for one exchange (tracemalloc), the aggregator's from the texts of the replies, which
it reads one by one as it does behind an engine.  Slopes are d log / d log S between neighbouring S:
1 is linear.  ``--lost``: at the default rates, where all pairs share a tenth of the sites drops
out in five stages; every message is bytes as FLARE would carry them.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
import threading
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from cape.computations import load
from cape.engines.coinstac.aggregator import gathered
from cape.engines.coinstac.documents import encode_broadcast, reply_document
from cape.engines.flare.rounds import AggregatorRounds, SiteRounds
from cape.engines.flare.site_file import SiteFile
from cape.protocol import wire
from cape.protocol.messages import FeatureSpace
from cape.protocol.sizes import weight_of
from cape.settings.documents import not_default, toml_text
from cape.simulation import memory
from cape.site.places import SitePlaces
from cape.site.policy import SitePolicy

SUBJECTS, FEATURES, TIMEPOINTS, COMPONENTS, ROUNDS = 3, 60, 80, 4, 3
POLICY = SitePolicy.of_simulation(simulation_seed=1)


class Matrices:
    """A site's subjects, made when they are asked for."""

    def __init__(self, seed: int) -> None:
        self._seed, self.space = seed, FeatureSpace.of_matrix(FEATURES)
        self.n_subjects = SUBJECTS

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Any]]:
        rng = np.random.default_rng(self._seed)
        mixing = np.random.default_rng(0).normal(size=(n_basis, COMPONENTS))
        for i in range(SUBJECTS):
            sources = rng.laplace(size=(COMPONENTS, TIMEPOINTS))
            noise = 0.1 * rng.normal(size=(n_basis, TIMEPOINTS))
            yield f"s{i}", (mixing @ sources + noise).astype(np.float32)


def settings_of(way: str, n_sites: int) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "epsilon": 8.0, "delta": 1e-5, "feature_space": "matrix", "basis": "none",
        "n_features": FEATURES,
        "n_components": COMPONENTS, "n_rounds": ROUNDS, "n_sites": n_sites,
        "accept_low_quality": True, "aggregation": way,
    }  # fmt: skip
    if way == "secagg":
        # A tenth may be lost, a fortieth may collude.
        chosen["min_survivors"] = max(2 * n_sites // 3 + 1, n_sites - n_sites // 10)
        chosen["assumed_colluders"] = max(1, n_sites // 40)
    return chosen


class Meter:
    """Stands between the parties of a run in memory and takes down what each call costs."""

    def __init__(self, watched: str) -> None:
        self.watched, self.rows = watched, defaultdict(lambda: defaultdict(list))
        self._site, self._aggregator = memory.advance_site, memory.advance_aggregator

    def site(self, run: Any, request: Any, party: Any) -> Any:
        row = self.rows[run.cursor.seq if request is None else request.seq]
        with traced(row["site_memory"], party.id == self.watched):
            began = time.perf_counter()
            after, reply = self._site(run, request, party)
        row["site_seconds"].append(time.perf_counter() - began)
        row["phase"] = [reply.phase]
        if party.id == self.watched:
            row["reply_bytes"].append(len(wire.dumps(reply_document(reply))))
        return after, reply

    def aggregator(self, run: Any, inbox: Any, party: Any) -> Any:
        row = self.rows[run.cursor.seq]
        texts = {site: wire.dumps(reply_document(e)) for site, e in inbox.items()}
        began, before = time.perf_counter(), dict(party.kept)
        after = self._aggregator(run, inbox, party)
        row["aggregator_seconds"].append(time.perf_counter() - began)
        kept = dict(party.kept)
        party.kept.clear()
        party.kept.update(before)
        if run.run:  # not `join`, which reads cards only
            with traced(row["aggregator_memory"], True):
                arriving = ((site, wire.loads(text)) for site, text in texts.items())
                self._aggregator(run, gathered(arriving, run.phase), party)
        party.kept.clear()
        party.kept.update(kept)
        row["broadcast_bytes"].append(len(wire.dumps(encode_broadcast(after[1]))))
        return after


@contextlib.contextmanager
def traced(into: list[int], wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    tracemalloc.start()
    try:
        yield
        into.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def play(way: str, n_sites: int) -> dict[str, Any]:
    computation = load("capedjica")
    config = computation.config.from_input(settings_of(way, n_sites))
    sources = {f"site{i:03}": Matrices(i + 1) for i in range(n_sites)}
    link = memory.MemoryTransport(computation, config, sources, POLICY, None)
    meter = Meter("site000")
    real = memory.advance_site, memory.advance_aggregator
    memory.advance_site, memory.advance_aggregator = meter.site, meter.aggregator
    began = time.perf_counter()
    try:
        while link.exchange()[0] is not None:
            pass
    finally:
        memory.advance_site, memory.advance_aggregator = real
    roster = link._state.model.roster
    weight = weight_of(config, roster.plan, n_sites, roster.n_basis)
    rows = [meter.rows[seq] for seq in sorted(meter.rows)]
    # Exchanges of a round of the solver: most of a run.
    rounds = [row for row in rows if row["phase"][0].startswith("iterate")]

    def most(name: str, among: list[Any]) -> float:
        return max(max(row[name]) for row in among if row[name])

    return {
        "way": way, "sites": n_sites, "exchanges": len(rows),
        "seconds": time.perf_counter() - began,
        "site_ms": 1e3 * statistics.median(x for row in rounds for x in row["site_seconds"]),
        "aggregator_ms": 1e3 * statistics.median(
            x for row in rounds for x in row["aggregator_seconds"]
        ),
        "reply_bytes": most("reply_bytes", rounds), "most_reply_bytes": most("reply_bytes", rows),
        "broadcast_bytes": most("broadcast_bytes", rounds),
        "most_broadcast_bytes": most("broadcast_bytes", rows),
        "site_memory": most("site_memory", rows[1:]),
        "aggregator_memory": most("aggregator_memory", rows),
        "neighbours": weight.graph.neighbours if weight.graph else n_sites - 1,
        "planned_site_memory": weight.site_memory,
        "planned_aggregator_memory": weight.aggregator_memory,
    }  # fmt: skip


# -- FLARE's simulator -----------------------------------------------------------------------------


def in_flare(n_sites: int) -> dict[str, Any]:
    from cape.python.api import simulate_folder as simulate

    lines: list[Any] = []
    with tempfile.TemporaryDirectory() as top:
        data = Path(top) / "data"
        for i in range(n_sites):
            folder = data / f"site{i:03}"
            folder.mkdir(parents=True)
            for name, values in Matrices(i + 1).reduced(FEATURES):
                np.save(folder / f"{name}.npy", values)
        stop, peak = threading.Event(), [0.0, 0.0, 0]
        watch = threading.Thread(target=sample, args=(stop, peak))
        watch.start()
        began = time.perf_counter()
        try:
            settings = settings_of("all-sites", n_sites)
            simulate(
                data, out=Path(top) / "out", through="nvflare", settings=settings, seed=1,
                policy=POLICY, on_progress=lines.append,
            )  # fmt: skip
        finally:
            stop.set()
            watch.join()
    rounds = [line.seconds for line in lines if line.phase == "iterate"]
    return {
        "way": "all-sites in FLARE's simulator", "sites": n_sites,
        "seconds": time.perf_counter() - began, "exchange_ms": 1e3 * statistics.median(rounds),
        "reply_bytes": max(line.bytes for line in lines), "memory_of_all": peak[0],
        "largest_process": peak[1], "processes": peak[2],
    }  # fmt: skip


def sample(stop: threading.Event, peak: list[Any]) -> None:
    """Note the most that all processes below this one hold at once, and the largest of them."""
    while not stop.wait(0.5):
        held = [rss for pid, rss in below(os.getpid())]
        peak[0] = max(peak[0], sum(held))
        peak[1] = max([peak[1], *held])
        peak[2] = max(peak[2], len(held))


def below(parent: int) -> list[tuple[int, int]]:
    children: dict[int, list[int]] = defaultdict(list)
    rss = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()
            pages = int((folder / "statm").read_text().split()[1])
        except OSError:
            continue  # it has ended
        children[int(state[1])].append(int(folder.name))
        rss[int(folder.name)] = pages * os.sysconf("SC_PAGE_SIZE")
    found, todo = [], list(children[parent])
    while todo:
        pid = todo.pop()
        found.append((pid, rss[pid]))
        todo += children[pid]
    return found


# -- FLARE's rounds without FLARE, and a tenth of the sites drops out ------------------------------

LOST_IN = ("zero-sum.shares", "zero-sum.probe", "iterate", "iterate.consistency", "iterate.unmask")


def answer(own: SiteFile, site: str, blob: bytes) -> tuple[str, bytes]:
    """Answer for a site, in whatever process: what it knows is on disk."""
    return site, SiteRounds(site, lambda: own, SitePlaces()).answer(blob, "owner")


def with_drop_outs(n_sites: int, rounds: int) -> dict[str, Any]:
    names = [f"site{i:03}" for i in range(n_sites)]
    gone = {name: LOST_IN[i % len(LOST_IN)] for i, name in enumerate(names[3::10])}
    settings = {**settings_of("all-sites", n_sites), "aggregation": "secagg", "n_rounds": rounds}
    asked, said, exchanges = [0], [0], 0
    began = time.perf_counter()
    # Processes of their own: one that is forked would hold the aggregator's folder too.
    apart = get_context("spawn")
    with tempfile.TemporaryDirectory() as top, ProcessPoolExecutor(mp_context=apart) as processes:
        own = {}
        for i, name in enumerate(names):
            data, home = Path(top) / "data" / name, Path(top) / name
            data.mkdir(parents=True)
            home.mkdir()
            for label, values in Matrices(i + 1).reduced(FEATURES):
                np.save(data / f"{label}.npy", values)
            policy = home / "site-policy.toml"
            policy.write_text(toml_text(not_default(POLICY)), encoding="utf-8")
            own[name] = SiteFile(data=str(data), runs=str(home), policy=str(policy))
        aggregator = AggregatorRounds("0" * 32, settings, Path(top))

        def ask(blobs: Mapping[str, bytes], timeout: float) -> Iterator[tuple[str, bytes]]:
            nonlocal exchanges
            exchanges += 1
            state = aggregator.state()
            phase = "join" if state is None else state.input["phase"]
            asked.extend(map(len, blobs.values()))
            calls = [
                processes.submit(answer, own[site], site, blob)
                for site, blob in blobs.items()
                if gone.get(site) != phase
            ]
            for call in calls:
                site, raw = call.result()
                said.append(len(raw))
                yield site, raw

        state = aggregator.play(names, ask, join=1.0, round=1.0)
        files = sorted(aggregator.files())
    return {
        "way": "secagg at the default rates, in processes", "sites": n_sites,
        "left": len(state.remaining), "ended": state.ended, "result_files": len(files),
        "exchanges": state.iteration, "calls": exchanges,
        "seconds": time.perf_counter() - began,
        "longest_question_bytes": max(asked), "longest_answer_bytes": max(said),
        "allowed_bytes": wire.MAX_ANSWER,
    }  # fmt: skip


# -- output ----------------------------------------------------------------------------------------


def with_slopes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to each row, but the first of a way, how each figure grew since the last S."""
    for before, row in itertools.pairwise(rows):
        if before["way"] == row["way"]:
            step = math.log(row["sites"] / before["sites"])
            row["slopes"] = {
                name: round(math.log(row[name] / before[name]) / step, 2)
                for name, value in row.items()
                if isinstance(value, int | float) and name not in ("sites", "exchanges")
                and value and before[name]
            }  # fmt: skip
    return rows


def show(row: dict[str, Any]) -> None:
    print(f"{row['way']}, {row['sites']} sites")
    slopes = row.get("slopes", {})
    for name, value in row.items():
        if name not in ("way", "sites", "slopes"):
            slope = f"   slope {slopes[name]:.2f}" if name in slopes else ""
            print(f"  {name:26s}{value:>16,.1f}{slope}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sites", default="4,16,50,200,500")
    parser.add_argument("--ways", default="all-sites,secagg")
    parser.add_argument("--flare", default="", help="numbers of sites for FLARE's simulator")
    parser.add_argument("--lost", default="", help="numbers of sites of which a tenth drop out")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of --lost")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    plays = [(play, way, int(n)) for way in given.ways.split(",") for n in given.sites.split(",")]
    if given.flare:
        plays = [(lambda _, n: in_flare(n), "", int(n)) for n in given.flare.split(",")]
    if given.lost:
        plays = [
            (lambda _, n: with_drop_outs(n, given.rounds), "", int(n))
            for n in given.lost.split(",")
        ]
    for what, way, n_sites in plays:
        rows.append(what(way, n_sites))
        with_slopes(rows[-2:])
        if not given.json:
            show(rows[-1])
    if given.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
