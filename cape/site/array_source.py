"""The data of a site whose subjects are arrays in this process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Self

from cape.algorithms.estimators import Array, Data
from cape.config import Config
from cape.data.pipeline import (
    SiteData,
    accepted_site,
    accepted_subjects,
    conclude,
    reduce_again,
    scan_of_arrays,
)
from cape.errors import CapeWarning, DataError
from cape.feature_space import FeatureSpace
from cape.frozen import dataclass
from cape.public_basis import public_basis


@dataclass(frozen=True, kw_only=True, slots=True)
class ArraySource:
    """Subjects in memory that passed the checks of files."""

    site: SiteData
    config: Config

    @classmethod
    def of(cls, site: str, arrays: Sequence[Array], space: FeatureSpace, config: Config) -> Self:
        """Check the arrays (D, T_m) of a site; warn of what was seen: who called has the data.

        Raises
        ------
        DataError
            As `cape.data.load_site`: too many subjects fail, or one does that must not be left out.
        """
        scan = scan_of_arrays(site, arrays, space, config)
        for _ in accepted_subjects(scan):
            pass
        try:
            accepted = accepted_site(conclude(scan))
        except DataError as err:
            err.add_note(err.detail)  # there is no site-error.txt, and who called has the data
            raise
        for finding in accepted.findings:
            warnings.warn(f"site {site}: {finding.private}", CapeWarning, stacklevel=4)
        return cls(site=accepted, config=config)

    @property
    def space(self) -> FeatureSpace:
        """Feature space of the arrays, as the caller described it."""
        return self.site.space

    @property
    def n_subjects(self) -> int:
        """M_s."""
        return self.site.n_subjects

    @property
    def tr_range(self) -> tuple[float, float]:
        """Not known of arrays."""
        return 0.0, 0.0

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Data]]:
        """Yield (label, Y_m (d, T_m)) subject by subject."""
        B = public_basis(self.config, self.space, n_basis)
        yield from reduce_again(self.site, B, self.config)
