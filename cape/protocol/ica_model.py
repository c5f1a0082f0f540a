"""The public state of joint ICA: what its stages have released."""

from __future__ import annotations

from dataclasses import field

from cape.algorithms.pca import Subspace
from cape.algorithms.spatial import SpatialComponents
from cape.algorithms.templates import TemplateMaps
from cape.algorithms.unmixing import Unmixing
from cape.algorithms.whitening import Whitener
from cape.frozen import dataclass
from cape.protocol.model import Model


@dataclass(frozen=True, kw_only=True, slots=True)
class IcaModel(Model):
    """Common subspace, whitening and unmixing.

    Attributes
    ----------
    subspace, whitener, unmixing
        Estimator states: V (d, k), U (k, k), W (k, k); None before the first release of a stage.
    spatial, template
        The one release of the other separations; None in a temporal run.
    """

    subspace: Subspace | None = None
    whitener: Whitener | None = None
    unmixing: Unmixing | None = None
    spatial: SpatialComponents | None = field(default=None, metadata={"added": True})
    template: TemplateMaps | None = field(default=None, metadata={"added": True})
