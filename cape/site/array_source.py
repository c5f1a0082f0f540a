"""The data of a site whose subjects are arrays in this process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from cape.algorithms.estimators import Array, Data
from cape.config import Config
from cape.data import project
from cape.data.in_memory import Accepted, accept, matrices
from cape.errors import CapeWarning
from cape.protocol.messages import FeatureSpace
from cape.public_basis import public_basis


@dataclass(frozen=True, slots=True)
class ArraySource:
    """Subjects in memory that passed the checks."""

    accepted: Accepted
    space: FeatureSpace
    config: Config

    @classmethod
    def of(cls, site: str, arrays: Sequence[Array], space: FeatureSpace, config: Config) -> Self:
        """Check the arrays (D, T_m) of a site; warn of what was found: who called has the data."""
        accepted = accept(site, arrays, config)
        for finding in accepted.findings:
            warnings.warn(f"site {site}: {finding.private}", CapeWarning, stacklevel=4)
        return cls(accepted, space, config)

    @property
    def n_subjects(self) -> int:
        """M_s."""
        return len(self.accepted.subjects)

    @property
    def tr_range(self) -> tuple[float, float]:
        """Not known of arrays."""
        return 0.0, 0.0

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Data]]:
        """Yield (label, Y_m (d, T_m)) subject by subject."""
        B = public_basis(self.config, self.space, n_basis)
        for label, X in matrices(self.accepted, self.config):
            yield label, project(X, B)
