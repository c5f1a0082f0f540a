"""Every decoder and reader of files on bytes that hypothesis makes of honest ones.

The targets are those of `make fuzz` (test/fuzz/targets.py), which goes on for longer and is guided
by coverage; each seed there was a crash or a blow-up once, or is an honest file.
"""

import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import targets

MOST_MEMORY = 64 * 2**20
"""Bytes that any input may make a reader hold: inputs here are below 200 kB."""
LONGEST = 10.0
SLOW = ("manifest", "matrix", "image", "mask", "journal", "policy", "identity", "side_file",
        "pieces", "setup", "frames")  # fmt: skip
"""Targets that write files: fewer examples."""

every_target = pytest.mark.parametrize("name", targets.TARGETS)


def damaged(name: str) -> st.SearchStrategy[bytes]:
    """Bytes of a seed cut, changed, repeated, swapped; or any bytes at all."""

    def build(which: int, steps: list[tuple[int, float, float, bytes]]) -> bytes:
        found = bytearray(targets.TARGETS[name].seeds[which])
        for kind, at, to, piece in steps:
            i, j = sorted((int(at * len(found)), int(to * len(found))))
            if kind == 0:
                found[i : i + len(piece)] = piece
            elif kind == 1:
                del found[i : min(j, i + 40)]
            elif kind == 2:
                found[i:i] = piece
            elif kind == 3:
                found[i:i] = found[i : min(j, i + 200)]
            elif found:
                found[i % len(found)] ^= 1 << int(to * 7)
        return bytes(found)

    place = st.floats(0.0, 1.0, exclude_max=True)
    words = st.sampled_from(
        [b"\xff" * 8, b"\x7f\xff\xff\xff", b"1e999", b"-1", b"NaN", b"null", b"[", b"9" * 30, b"\0",
         b'"', b"\\u0000", b"\xe2\x80\xa8", b",", b"\n"]
    )  # fmt: skip
    step = st.tuples(st.integers(0, 4), place, place, words | st.binary(min_size=1, max_size=8))
    steps = st.lists(step, min_size=1, max_size=4)
    which = st.integers(0, len(targets.TARGETS[name].seeds) - 1)
    return st.builds(build, which, steps) | st.binary(max_size=64)


def measured(name: str, data: bytes) -> None:
    """Run a target within the limits of memory and time."""
    began = time.monotonic()
    tracemalloc.start()
    try:
        targets.attempt(name, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_MEMORY, f"{peak} bytes for an input of {len(data)}"
    assert time.monotonic() - began < LONGEST


@every_target
def test_every_seed_is_read_or_properly_refused(name) -> None:
    for seed in targets.TARGETS[name].seeds:
        measured(name, seed)


@every_target
def test_damaged_files_and_documents_are_read_or_properly_refused(name) -> None:
    count = 25 if name in SLOW else 80

    @settings(max_examples=count)
    @given(damaged(name))
    def check(data: bytes) -> None:
        measured(name, data)

    check()


def test_an_honest_seed_of_every_reader_is_accepted() -> None:
    """Else the fuzzing would only ever look at refusals."""
    accepted = {}
    for name, fuzzed in targets.TARGETS.items():
        for seed in fuzzed.seeds:
            try:
                fuzzed.run(seed)
            except (*targets.REFUSED, ArithmeticError):
                continue
            accepted[name] = accepted.get(name, 0) + 1
    assert set(accepted) >= set(targets.TARGETS) - {"identity", "call"}


def test_a_target_that_crashes_is_seen(monkeypatch) -> None:
    def crash(data: bytes) -> None:
        raise IndexError("list index out of range")

    def swell(data: bytes) -> None:
        bytearray(2 * MOST_MEMORY)

    for wrong, error in ((crash, IndexError), (swell, AssertionError)):
        monkeypatch.setitem(targets.TARGETS, "secrets", targets.Fuzzed(wrong, (b"",)))
        with pytest.raises(error):
            measured("secrets", b"")
