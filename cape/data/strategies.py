"""Confounds and scrubbing by nilearn's `load_confounds`, imported only where a run is read.

Ciric et al. 2017, NeuroImage 154; which columns of fMRIPrep's tables a strategy means is nilearn's.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import threading
import warnings
from pathlib import Path
from typing import Any, Final

import numpy as np

from cape.algorithms.estimators import Array
from cape.data.issues import IssueCode, UnusableFile
from cape.data.runs import Kept
from cape.settings.resolved import Reading
from cape.settings.words import parse_strategy

# Letters of a message of nilearn that are shown
MAX_MESSAGE_LETTERS: Final = 200
# Its warnings are ignored, and warning filters belong to the process, not to a thread.
_ONE_AT_A_TIME: Final = threading.Lock()


def has_nilearn() -> bool:
    return importlib.util.find_spec("nilearn") is not None


def strategy_confounds(image: Path, how: Reading, n_times: int) -> tuple[Array, Kept, str]:
    """Return signals to regress out of a run (T, K), volumes that stay (T,), and their SHA-256.

    K may be 0.  UnusableFile if nilearn finds no table.
    """
    asked = parse_strategy(how.strategy)
    options: dict[str, Any] = {
        name: int(value) if value.isdecimal() else value for name, value in asked.items() if value
    }
    options |= {
        "fd_threshold": how.fd_threshold,
        "std_dvars_threshold": how.dvars_threshold,
        "demean": False,  # the intercept of our own least squares does it
    }
    strategy = [name for name in asked if name not in ("n_compcor", "non_steady_state")]
    try:
        with _ONE_AT_A_TIME, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from nilearn.interfaces.fmriprep import load_confounds

            # It finds the tables by this name, and only for compressed images.
            name = str(image) + (".gz" if image.name.endswith("_bold.nii") else "")
            table, sample_mask = load_confounds(name, tuple(strategy), **options)
    except Exception as err:  # nilearn and pandas raise various errors
        observed = _observed(err)
        raise UnusableFile(IssueCode.CONFOUND_STRATEGY, observed, strategy=how.strategy) from err
    empty = table is None or not table.shape[1]
    # nilearn takes what there is of this part, even nothing.
    if "high_pass" in asked and (empty or not any(c.startswith("cosine") for c in table.columns)):
        observed = "the table has no columns of high_pass (cosine00, cosine01, ...)"
        raise UnusableFile(IssueCode.CONFOUND_STRATEGY, observed, strategy=how.strategy)
    if not empty:
        if len(table) != n_times:
            observed = f"{len(table)} rows, {n_times} volumes"
            raise UnusableFile(IssueCode.CONFOUND_ROWS, observed)
        # nilearn takes names from sets, whose order differs between processes.
        table = table[sorted(table.columns)]
    values = np.zeros((n_times, 0)) if empty else table.to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        column = str(table.columns[int(np.flatnonzero(~np.isfinite(values).all(axis=0))[0])])
        raise UnusableFile(IssueCode.CONFOUND_CELL, f"column {column}")
    kept = np.ones(n_times, dtype=bool)
    if sample_mask is not None:
        kept[:] = False
        kept[np.asarray(sample_mask, dtype=np.intp)] = True
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes() + kept.tobytes()).hexdigest()
    return values, kept, digest


def _observed(err: Exception) -> str:
    """Return what nilearn misses, in our words where it lists columns."""
    text = " ".join(str(err).split())
    if missing := re.search(r"are missing:(.*?\].*?\])", text):
        columns = re.findall(r"'([^']+)'", missing[1])
        return f"the table has no columns of {', '.join(columns)}"
    return f"{text[:MAX_MESSAGE_LETTERS]} ..." if len(text) > MAX_MESSAGE_LETTERS else text
