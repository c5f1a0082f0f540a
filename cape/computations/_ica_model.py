"""The public state of joint ICA: what its stages have released."""

from __future__ import annotations

from dataclasses import dataclass

from cape.algorithms.pca import Subspace
from cape.algorithms.unmixing import Unmixing
from cape.algorithms.whitening import Whitener
from cape.computations._model import Model


@dataclass(frozen=True, kw_only=True, slots=True)
class IcaModel(Model):
    """Common subspace, whitening and unmixing.

    Attributes
    ----------
    subspace, whitener, unmixing
        Estimator states: V (d, k), U (k, k), W (k, k); None before the first release of a stage.
    """

    subspace: Subspace | None = None
    whitener: Whitener | None = None
    unmixing: Unmixing | None = None
