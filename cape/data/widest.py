"""The widest basis that a run may ask for: built once, and what a store keeps of subjects in it."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np

from cape.algorithms.estimators import Data
from cape.data.data_store import DataStore
from cape.data.kept_subjects import KeptSubjects, Seen
from cape.data.listing import SiteListing
from cape.data.runs import SubjectFiles
from cape.data.space import with_templates
from cape.data.subjects import ReadSubject
from cape.errors import CapeError, DataError
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import Basis, public_basis, widest_basis

# Rows of a subject that are projected at a time: 8192 x 400 doubles are 26 MB.
ROWS: Final = 8192

# Bytes of voxels of all subjects of a site that are kept, so that no basis is built only to check.
MAX_VOXELS: Final = 10**9


class Widest:
    """The widest basis that a run may ask for, and what a store keeps of the subjects in it."""

    def __init__(
        self, listing: SiteListing, base: Path, store: DataStore | None, *, reduce: bool
    ) -> None:
        self._listing, self._base = listing, base
        self._lock = Lock()
        self._basis: Future[Basis | None] | None = None
        self.kept: KeptSubjects | None = None
        # Whether subjects are projected now, and whether their voxels are kept; see `begin`
        self.reduces, self.keeps_voxels = reduce, False
        space = listing.space
        # A matrix is read faster than it is found.
        if store is not None and space is not None and space.kind != "matrix":
            with suppress(DataError):  # of templates, raised where the basis is used
                self.kept = KeptSubjects(store, listing.how, self._with_templates(space))

    def begin(self, n_bytes: int) -> None:
        """Decide what is kept of subjects of `n_bytes` each.

        Where voxels are few they are kept: building a basis would cost more than reading, and a try
        of other settings may ask for another one.  Of many the basis costs next to nothing.
        """
        n_subjects = len(self._listing.listed)
        self.keeps_voxels = self.kept is not None and n_subjects * n_bytes <= MAX_VOXELS
        self.reduces |= self.kept is not None and not self.keeps_voxels

    def basis(self) -> Basis | None:
        """Return B, None for the identity; CapeError: there is none, or what broke the building."""
        with self._lock:
            # An error is kept, too: the next who asks must not take none for the identity.
            if self._basis is None:
                self._basis = Future()
                try:
                    self._basis.set_result(self._build())
                except Exception as err:
                    self._basis.set_exception(err)
        return self._basis.result()

    def _build(self) -> Basis | None:
        if self._listing.space is None:
            raise ValueError("nobody's features are known")
        space, how = self._with_templates(self._listing.space), self._listing.how
        return public_basis(how, space, widest_basis(how, space))

    def _with_templates(self, space: FeatureSpace) -> FeatureSpace:
        if not self._listing.how.templates:
            return space
        return with_templates(space, self._base, site=self._listing.site)

    def prepare(self) -> None:
        """Build the basis before the first subject asks for it."""
        with suppress(Exception):  # raised where the basis is used
            self.basis()

    def project(self, X: Data) -> Data | None:
        """Return Y (d, T); None where there is no such basis, or X has other features."""
        space = self._listing.space
        if space is None or space.n_features != len(X):
            return None
        # Raised where nobody has an array in the basis.
        with suppress(CapeError):
            return project(X, self.basis())
        return None

    def look(self, files: SubjectFiles) -> tuple[Seen | None, ReadSubject | None]:
        """Return what is known of a subject's files, and all that is asked of it if it is kept."""
        if self.kept is None or (seen := self.kept.look(files)) is None:
            return None, None
        read = self.kept.facts(seen, files, self._listing.site)
        if read is None or not self.reduces:
            return seen, read
        Y = self.kept.array(seen)
        if Y is None and (X := self.kept.array(seen, voxels=True)) is not None:
            Y = self.project(X)
            if Y is not None:
                self.kept.keep_reduced(seen, Y)
        return seen, None if Y is None else replace(read, Y=Y)

    def finish(self) -> None:
        if self.kept is not None:
            self.kept.finish(self._base)


def project(values: Data, basis: Basis | None) -> Data:
    """Return ``B' X``, shape (d, T), float32; `values` is X (D, T), None the identity."""
    if basis is None:
        return values
    if basis.shape[0] != values.shape[0]:
        raise ValueError(f"basis has {basis.shape[0]} rows, the data have {values.shape[0]}")
    if not isinstance(basis, np.ndarray):
        return basis.adjoint(values).astype(np.float32)
    # Sums in doubles: in float32 the result would depend on the order of 70,000 voxels.
    total = np.zeros((basis.shape[1], values.shape[1]))
    for first in range(0, values.shape[0], ROWS):
        rows = slice(first, first + ROWS)
        total += basis[rows].T @ values[rows].astype(np.float64)
    return total.astype(np.float32)
