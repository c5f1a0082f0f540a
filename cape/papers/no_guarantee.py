"""What computations without a privacy guarantee share: comparisons, labelled "none".

They run through the same engine and the same masked sums, so that the aggregator still sees sums
of sites only; but nothing of private noise is in these sums, and no page may suggest it.
"""

from __future__ import annotations

import numpy as np

from cape.errors import ConfigError, PrivacyBudgetError
from cape.protocol.ports import Site, Stacks, View
from cape.protocol.secure_sum import chunks
from cape.settings.config import Config


def check_not_private(name: str, config: Config) -> None:
    # It could not keep the promise, whatever the budget.
    if config.private:
        raise ConfigError("E255", computation=name)


def check_n_local(n_local: int, n_components: int) -> None:
    # A site that keeps fewer directions than there are components hides some from the others.
    if n_local < n_components:
        raise ConfigError(
            "E011",
            setting="n_local",
            got=n_local,
            allowed=f"at least n_components = {n_components}",
            do="raise it.",
        )


def refuse_real_data(name: str, site: Site) -> None:
    """Raise PrivacyBudgetError at a site whose noise is not seeded by its own policy."""
    # Only simulations have such a policy, so neither the owner nor the aggregator can bring real
    # data into such a run.
    if site.noise.label != "seeded":
        raise PrivacyBudgetError("E256", computation=name, site=site.id)


def as_one_record(
    subjects: Stacks | View, label: str, *, weighted: bool, n_subjects: int = 1
) -> Stacks:
    """Return all subjects (n, rows, T) of a site as one record (1, rows, N_s), side by side.

    `weighted` scales a subject's columns by 1/sqrt(T_m M), so that X X' is its part of the mean of
    all subjects' second moments.
    """
    parts = []
    for array in chunks(subjects):
        # A NumPy double would turn the array into doubles, of twice the memory.
        scale = np.float32(1.0 / np.sqrt(max(array.shape[2], 1) * n_subjects)) if weighted else 1
        parts.append((array * np.float32(scale)).swapaxes(0, 1).reshape(array.shape[1], -1))
    columns = np.ascontiguousarray(np.concatenate(parts, axis=1))
    # A site whose subjects all failed answers, as one column of zeros.
    if columns.shape[1] == 0:
        columns = np.zeros((len(columns), 1), dtype=np.float32)
    return Stacks(arrays=(columns[np.newaxis],), labels=((label,),))
