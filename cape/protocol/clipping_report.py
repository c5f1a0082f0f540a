"""What only one site may know of its own subjects at the end of a run: how much was clipped.

Nothing here is a message: the numbers go into the site's own folder and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from cape.algorithms.estimators import Estimator
from cape.protocol.model import Model, joined
from cape.protocol.ports import Site
from cape.protocol.secure_sum import SecureSum, chunks

Scales = tuple[tuple[str, tuple[float, ...]], ...]
"""Phase, and for every subject of the site the factor that clipping puts on its answer."""


def clip_scales(site: Site, model: Model, stages: Sequence[SecureSum[Any]]) -> Scales:
    """Return how much clipping shortens each subject's answer under the last released state.

    1 is not clipped, 0 counts as nothing (not finite).  Asked again under the final state, with
    the clip of the phase's last release; earlier rounds are not looked at.
    """
    if not site.config.private:
        return ()
    found = []
    for stage in stages:
        events = [event for event in joined(model).plan if event.phase == stage.name]
        if not events:
            continue
        clip = events[-1].clip_int / events[-1].gamma
        query = _unclipped(stage.estimator(site.config, model)).query(
            stage.current(site.config, model)
        )
        scales: list[float] = []
        for part in chunks(stage.input(site, model)):
            with np.errstate(all="ignore"):
                norms = np.linalg.norm(query.answer(part), axis=1)
            scales += [_scale(float(norm), clip) for norm in norms]
        found.append((stage.name, tuple(scales)))
    return tuple(found)


def _unclipped(estimator: Estimator[Any]) -> Estimator[Any]:
    """Return the same estimator without its bound, for the site's own eyes."""
    names = {spec.name for spec in dataclasses.fields(estimator)}  # type: ignore[arg-type]
    if "private" not in names:
        return estimator
    changed: Estimator[Any] = dataclasses.replace(estimator, private=False)  # type: ignore[type-var]
    return changed


def _scale(norm: float, clip: float) -> float:
    if not np.isfinite(norm):
        return 0.0
    # Rounding of the bound is no clipping.
    return 1.0 if norm <= clip * (1.0 + 1e-4) else clip / norm
