"""What a party carries from round to round: bytes of its state and time to read it, by round.

    python bench/state.py [--rounds 40] [--json]

Plays a run of three small sites and keeps the state of one after every answer.  Reading is parsing
and decoding in this process, the least of 15 CPU times.  The ratios are those of the last round to
the second: a state that gets longer costs every later round of a stateless party.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any
from unittest import mock

import numpy as np

import cape
from cape.engines.coinstac import documents
from cape.protocol import wire
from cape.simulation import memory

PHASE = "iterate"


def consortium() -> cape.Consortium:
    rng = np.random.default_rng(1)
    maps = rng.standard_normal((12, 3))

    def subject() -> Any:
        return (maps @ rng.laplace(size=(3, 60)) + 0.2 * rng.standard_normal((12, 60))).T

    return cape.Consortium({name: [subject() for _ in range(4)] for name in ("a", "b", "c")})


def states(rounds: int) -> dict[int, tuple[Any, bytes]]:
    """Return the computation and the text of a site's state after each round."""
    found: dict[int, tuple[Any, bytes]] = {}
    real = memory.advance_site

    def heard(run: Any, request: Any, party: Any) -> Any:
        after, reply = real(run, request, party)
        if (after.cursor.phase, party.id) == (PHASE, "a"):
            computation = after.bound.computation
            text = wire.dumps(documents.encode_run(computation, after))
            found[after.cursor.round] = (computation, text)
        return after, reply

    chosen = {"n_components": 3, "n_rounds": rounds, "min_timepoints": 10}
    with mock.patch.object(memory, "advance_site", heard), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run is too small to be of use, and says so
        consortium().run(epsilon=8.0, delta=1e-3, settings=chosen, seed=1)
    return found


def read_ms(computation: Any, text: bytes) -> float:
    taken = []
    for _ in range(15):
        began = time.process_time()
        documents.decode_run(computation, wire.loads(text), party="a")
        taken.append(time.process_time() - began)
    return 1e3 * min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = states(arguments.rounds)
    last = max(found)
    rows = [
        {"round": n, "bytes": len(found[n][1]), "read_ms": read_ms(*found[n])}
        for n in sorted({2, last // 2, last})
    ]
    ratios = {name: rows[-1][name] / rows[0][name] for name in ("bytes", "read_ms")}
    if arguments.json:
        print(json.dumps({"rounds": rows, "ratios": ratios}))
        return
    for row in rows:
        print(f"round {row['round']:4}: {row['bytes']:6} bytes, read in {row['read_ms']:.2f} ms")
    print(f"last / second: bytes {ratios['bytes']:.3f}, time to read {ratios['read_ms']:.2f}")


if __name__ == "__main__":
    main()
