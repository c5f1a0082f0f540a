"""Cost of masks, fixed point, SecureAgg and noise.

    python bench/secagg.py [--json] [--repeats 15] [--draws 20000]

The floor of a mask is the raw ChaCha20 output of the same number of bytes, from the same library
in the same run, interleaved with the mask; the faster of two ways to ask for it counts (whole, and
in pieces that fit the cache).  The sampler is compared with OpenDP's exact discrete Gaussian on
the same draw.  Ratios are of minima over the repeats, which other load on the machine can only
raise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
import time
from collections.abc import Callable
from typing import Any

import cryptography
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from cape.privacy.noise import discrete_gaussian
from cape.secagg import aggregator_steps as aggregator
from cape.secagg import site_steps as at_site
from cape.secagg.field import quantized_sum
from cape.secagg.keys import KeyRing, KeyRosterEntry, MaskLabel, RunSecret, pair_keys, zero_sum_mask
from cape.secagg.steps import Setup, check_advertisements

MASK = 405_450  # svec of 900 x 900, the largest release
N_SITES = 4
PIECE = 1 << 17  # bytes
VARIANCE = 7_970_512_855_801  # one share of the projector release in the worked plan
TARGETS = {"mask_ratio": 2.5, "sampler_speedup": 15.0}

Task = Callable[[], object]


def interleaved(jobs: dict[str, Task], repeats: int) -> dict[str, float]:
    """Return the least wall milliseconds of each job; one warm-up of each."""
    seen: dict[str, list[float]] = {name: [] for name in jobs}
    for i in range(repeats + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            if i:
                seen[name].append(1e3 * (time.perf_counter() - start))
    return {name: min(ms) for name, ms in seen.items()}


def label(size: int) -> MaskLabel:
    return MaskLabel(phase="pca", round=1, field="sum", size=size, transcript=bytes(32))


def rings(n_sites: int) -> list[KeyRing]:
    return [
        KeyRing(site=f"site{i}", secret_key=hashlib.sha256(bytes([i])).digest())
        for i in range(n_sites)
    ]


def raw_output(size: int, piece: int) -> Task:
    """Return a job that makes `size` bytes for every other site, asked for in pieces."""
    zeros, buffer = bytes(piece), bytearray(piece)

    def job() -> object:
        for _ in range(N_SITES - 1):
            encryptor = Cipher(algorithms.ChaCha20(bytes(32), bytes(16)), mode=None).encryptor()
            for start in range(0, size, piece):
                encryptor.update_into(zeros[: min(piece, size - start)], buffer)
        return buffer

    return job


def masks(repeats: int) -> dict[str, float]:
    """Return the cost of e_s for one large vector, as a ratio to the floor."""
    sites = rings(N_SITES)
    entries = [KeyRosterEntry(site=r.site, n_subjects=1, public_key=r.public_key) for r in sites]
    pairs = pair_keys(sites[1], entries, salt=bytes(32))
    ms = interleaved(
        {
            "whole": raw_output(8 * MASK, 8 * MASK),
            "pieces": raw_output(8 * MASK, PIECE),
            "mask": lambda: zero_sum_mask(pairs, label(MASK)),
            "small": lambda: zero_sum_mask(pairs, label(190)),
            "keys": lambda: pair_keys(sites[1], entries, salt=bytes(32)),
        },
        repeats,
    )
    floor = min(ms["whole"], ms["pieces"])
    return {
        "entries": MASK,
        "sites": N_SITES,
        "raw_chacha20_ms": floor,
        "mask_ms": ms["mask"],
        "mask_ratio": ms["mask"] / floor,
        "mask_of_190_ms": ms["small"],
        "pair_keys_ms": ms["keys"],
    }


def fixed_point(repeats: int) -> dict[str, float]:
    """Return ms of clip, rounding and sum for 256 subjects."""
    rng = np.random.default_rng(1)
    jobs: dict[str, Task] = {}
    for d, clip_int in ((190, 22_937), (80_200, 586_171)):
        stack = rng.normal(size=(256, d)) * (0.2 / math.sqrt(d))
        jobs[f"256 x {d}"] = lambda stack=stack, clip_int=clip_int: quantized_sum(  # type: ignore[misc]
            stack, log2_gamma=16, clip_int=clip_int, shape="ball"
        )
    return interleaved(jobs, min(repeats, 5))


def messages(outcomes: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    return {site: message for site, (_, message) in outcomes.items()}


def secagg(n_sites: int, n_sets: int) -> dict[str, float]:
    """Return ms of one whole run with one site lost: key sets, then one release of 190 entries."""
    source = RunSecret(secret=bytes(range(32)), label="os").stream("noise")
    colluders = max(1, math.ceil(n_sites / 3) - 1)
    sizes = {f"site{i}": 10 for i in range(n_sites)}
    setup = Setup(salt=bytes(32), sizes=sizes, colluders=colluders, n_sets=n_sets)
    started = time.perf_counter()
    first = {
        s: at_site.advertise(
            setup, site=s, identity_secret=source.token_bytes(32), token_bytes=source.token_bytes
        )
        for s in sizes
    }
    listed = {site: state.own for site, state in first.items()}
    check_advertisements(setup, listed)
    shared = {
        site: at_site.share(state, listed, token_bytes=source.token_bytes)
        for site, state in first.items()
    }
    table = aggregator.KeyTable.of(setup, listed)
    book = aggregator.route_shares(table, messages(shared))
    ready = {site: at_site.accept_shares(state, book) for site, (state, _) in shared.items()}
    exchanged = time.perf_counter()
    zeros = np.zeros(190, dtype=np.uint64)
    del ready["site0"]
    sent = {
        site: at_site.mask_input(state, zeros, label=label(190), participants=sorted(sizes))
        for site, state in ready.items()
    }
    pending, survivors = aggregator.collect_masked(
        table, messages(sent), key_set=0, label=label(190), participants=sorted(sizes)
    )
    signed = {s: at_site.sign_survivors(state, survivors) for s, (state, _) in sent.items()}
    marks = aggregator.collect_signatures(pending, messages(signed))
    opened = {s: at_site.unmask(state, marks) for s, (state, _) in signed.items()}
    result = aggregator.unmask_sum(pending, messages(opened), bound=1)
    assert not result.total.any()
    done = time.perf_counter()
    return {
        "sites": n_sites,
        "key_sets": n_sets,
        "stages_1_2_all_parties_ms": 1e3 * (exchanged - started),
        "release_all_parties_ms": 1e3 * (done - exchanged),
        "share_bytes_per_site": sum(len(c) for c in shared["site0"][1].sealed.values()),
    }


def sampler(draws: int, repeats: int) -> dict[str, object]:
    """Return ms of the exact sampler, and of OpenDP on the same draw if it is installed."""
    source = RunSecret(secret=bytes(range(32)), label="os").stream("noise")
    jobs: dict[str, Task] = {
        "cape": lambda: discrete_gaussian(VARIANCE, draws, source),
        "large": lambda: discrete_gaussian(VARIANCE, MASK, source),
    }
    try:
        import opendp.prelude as dp
    except ImportError:
        ms = interleaved(jobs, min(repeats, 5))
        theirs = None
    else:
        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
        release = dp.m.make_gaussian(*space, scale=math.sqrt(VARIANCE))
        jobs["opendp"] = lambda: release([0] * draws)
        ms = interleaved(jobs, min(repeats, 3))
        theirs = ms["opendp"]
    return {
        "draws": draws,
        "variance": VARIANCE,
        "cape_ms": ms["cape"],
        "cape_values_per_s": 1e3 * MASK / ms["large"],
        "opendp_ms": theirs,
        "sampler_speedup": None if theirs is None else theirs / ms["cape"],
    }


def measure(repeats: int, draws: int) -> dict[str, object]:
    """Return all figures, ready for JSON."""
    return {
        "mask": masks(repeats),
        "fixed_point_ms": fixed_point(repeats),
        "secagg": [secagg(4, 50), secagg(10, 50)],
        "sampler": sampler(draws, repeats),
        "targets": TARGETS,
        "repeats": repeats,
        "numpy": np.__version__,
        "cryptography": cryptography.__version__,
        "machine": platform.machine(),
    }


def lines(figures: object, indent: str = "") -> list[str]:
    """Return nested figures as lines of text."""
    if isinstance(figures, dict):
        return [
            line
            for name, value in figures.items()
            for line in (
                [f"{indent}{name}:", *lines(value, indent + "  ")]
                if isinstance(value, dict | list)
                else [
                    f"{indent}{name:32s}{value if not isinstance(value, float) else f'{value:.3f}'}"
                ]
            )
        ]
    assert isinstance(figures, list)
    return [line for value in figures for line in [*lines(value, indent), ""]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--draws", type=int, default=20_000)
    chosen = parser.parse_args()
    figures = measure(chosen.repeats, chosen.draws)
    print(json.dumps(figures, indent=2) if chosen.json else "\n".join(lines(figures)))


if __name__ == "__main__":
    main()
