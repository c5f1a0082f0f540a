"""What a round pays to remember itself: journal, vault and charge, in files and in sqlite3.

    python bench/store.py [--repeats 40] [--folder DIR]

Both store the same things of a site's round and are on disk when they return: a charge before the
noise is drawn; then the answer, the receipt and the entry of the reply; every fifth round a sealed
secret.  Files are `cape.site.store.FileStore` as a run uses it; sqlite3 is one database with
``synchronous=FULL``, opened and closed in every round as a process per round must, with a rollback
journal and with a write-ahead log.  Wall time is that of the disk below --folder, CPU time is what
the start of a round has to pay.  The second table is the CPU time of the imports, in new processes.
Medians over the repeats, ways interleaved.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from cape.secagg.keys import seal
from cape.site.store import FileStore, ReplyEntry

NONCE, KEY = "ab" * 16, bytes(range(32))
CHARGE = {"phase": "iterate", "field": "total", "mu2": "12345/67890", "head": "0" * 64}
SIZES = (10_000, 100_000, 1_000_000)
IMPORTS = ("numpy", "numpy, sqlite3", "numpy, fcntl", "numpy, zipfile")
TABLES = (
    "create table if not exists charge (line text primary key)",
    "create table if not exists reply (seq integer primary key, line text)",
    "create table if not exists answer (one integer primary key, nonce, seq, request, answer)",
    "create table if not exists vault (name text primary key, sealed blob)",
)

Round = Callable[[int], None]


def entry(seq: int) -> ReplyEntry:
    return ReplyEntry(
        seq=seq, phase="iterate", round=seq, message="Masked", fields={"total": 1000},
        bytes=1500, sha256="0" * 64,
    )  # fmt: skip


def in_files(folder: Path, size: int) -> Round:
    answer = {"output": {"body": "x" * size}, "cache": {"cape": {}}}
    FileStore(folder, folder, "x").begin(NONCE, KEY)

    def play(seq: int) -> None:
        store = FileStore(folder, folder, "x")
        store.resume(NONCE, KEY, seq)
        if seq > 1:
            store.answered(seq, f"r{seq}")
        store.charge({**CHARGE, "round": seq})
        if seq % 5 == 1:
            store.keep(f"key{seq}", bytes(32))
        store.store(seq, f"r{seq}", answer)
        store.log_reply(entry(seq))

    return play


def in_sqlite(mode: str) -> Callable[[Path, int], Round]:
    def make(folder: Path, size: int) -> Round:
        answer = {"output": {"body": "x" * size}, "cache": {"cape": {}}}

        def play(seq: int) -> None:
            with closing(sqlite3.connect(folder / "store.db", isolation_level=None)) as base:
                base.execute(f"pragma journal_mode={mode}")
                base.execute("pragma synchronous=FULL")
                if seq == 1:
                    for table in TABLES:
                        base.execute(table)
                base.execute("select nonce, seq, request from answer").fetchone()
                line = json.dumps({**CHARGE, "round": seq}, sort_keys=True)
                base.execute("insert or ignore into charge values (?)", (line,))
                base.execute("begin immediate")
                if seq % 5 == 1:
                    sealed = seal(KEY, bytes(32), context=b"x", nonce=bytes(12))
                    base.execute("replace into vault values (?, ?)", (f"key{seq}", sealed))
                row = (NONCE, seq, f"r{seq}", json.dumps(answer))
                base.execute("replace into answer values (1, ?, ?, ?, ?)", row)
                base.execute("insert or ignore into reply values (?, ?)", (seq, repr(entry(seq))))
                base.execute("commit")

        return play

    return make


WAYS = {
    "files": in_files,
    "sqlite3, rollback journal": in_sqlite("DELETE"),
    "sqlite3, write-ahead log": in_sqlite("WAL"),
}


def per_round(size: int, repeats: int, folder: Path | None) -> dict[str, tuple[float, float]]:
    """Return median wall and CPU milliseconds of a round by way."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory(dir=folder) as top:
        plays = {}
        for name, make in WAYS.items():
            place = Path(top, name)
            place.mkdir()
            plays[name] = make(place, size)
        for seq in range(1, repeats + 2):
            for name, play in plays.items():
                wall, cpu = time.perf_counter(), time.process_time()
                play(seq)
                took = time.perf_counter() - wall, time.process_time() - cpu
                if seq > 1:  # the first makes the folder or the tables
                    seen[name].append(took)
    return {
        name: (
            1e3 * statistics.median(wall for wall, _ in took),
            1e3 * statistics.median(cpu for _, cpu in took),
        )
        for name, took in seen.items()
    }


def import_cpu(repeats: int) -> dict[str, float]:
    """Return the least CPU milliseconds of a process that imports these modules."""
    least: dict[str, float] = dict.fromkeys(IMPORTS, float("inf"))
    for _ in range(repeats):
        for names in IMPORTS:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", f"import {names}"], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            least[names] = min(least[names], 1e3 * spent)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    asked = parser.parse_args()
    print(f"{'answer, bytes':>14}  {'way':28}{'wall ms':>9}{'CPU ms':>9}")
    for size in SIZES:
        for name, (wall, cpu) in per_round(size, asked.repeats, asked.folder).items():
            print(f"{size:>14}  {name:28}{wall:>9.2f}{cpu:>9.2f}")
    spent = import_cpu(max(5, asked.repeats // 4))
    print(f"\n{'import':44}{'CPU ms':>9}{'of numpy':>10}")
    for names, ms in spent.items():
        print(f"{names:44}{ms:>9.1f}{ms / spent['numpy']:>10.3f}")


if __name__ == "__main__":
    main()
