"""What a round of a site pays to get its working arrays back, beside the round's own arithmetic.

    python bench/side_files.py [--json] [--subjects 2500] [--repeats 9]

`subjects` of 250 time points, 20 components, as `FileStore.arrays` finds them in a later round, and
the score moments that the round makes of them; the arrays come from the file in every repeat.
`copied` is the plain way: summed up and copied every time.  Minima of CPU ms.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cape.algorithms.quasi_newton import skew_moments
from cape.data.array_file import SETTLED, own_file, read_arrays
from cape.protocol.ports import Stacks
from cape.site.store import FileStore

R, T = 20, 250


def least(task: Callable[[], object], repeats: int) -> float:
    spent = []
    for _ in range(repeats + 1):
        began = time.process_time()
        task()
        spent.append(1e3 * (time.process_time() - began))
    return min(spent[1:])


def measure(n_subjects: int, repeats: int, folder: Path) -> dict[str, float]:
    rng, W = np.random.default_rng(1), np.eye(R)
    stack = rng.standard_normal((n_subjects, R, T)).astype(np.float32)
    labels = (tuple(str(i) for i in range(n_subjects)),)
    store = FileStore(folder, folder, "site")
    store.put_arrays("white", "key", Stacks(arrays=(stack,), labels=labels))
    (path,) = folder.iterdir()

    def of_file() -> object:
        found = store.arrays("white", "key")
        assert found is not None
        return skew_moments(W, found.arrays[0], "volatility")

    def copied() -> object:
        with own_file(path) as (file, _):
            found = read_arrays(file, " key")
        assert found is not None
        return skew_moments(W, found.arrays[0].copy(), "volatility")

    time.sleep(SETTLED + 0.1)
    of_file()
    assert path.with_suffix(".seen").exists()
    in_memory = least(lambda: skew_moments(W, stack, "volatility"), repeats)
    mapped, plain = least(of_file, repeats), least(copied, repeats)
    return {
        "subjects": n_subjects,
        "MB": stack.nbytes / 1e6,
        "arithmetic_ms": in_memory,
        "with_file_ms": mapped,
        "copied_ms": plain,
        "ratio": mapped / in_memory,
        "copied_ratio": plain / in_memory,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a line")
    parser.add_argument("--subjects", type=int, default=2500)
    parser.add_argument("--repeats", type=int, default=9)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(chosen.subjects, chosen.repeats, Path(folder))
    if chosen.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name:16s}{value:10.3f}")


if __name__ == "__main__":
    main()
