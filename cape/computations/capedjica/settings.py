"""Settings of capedjica, and the algorithm of each stage under them."""

from __future__ import annotations

import math
from typing import Literal, Protocol

from cape.algorithms.estimators import Estimator
from cape.algorithms.pca import ProjectorPca, Subspace
from cape.algorithms.quasi_newton import QuasiNewton, TunedConstants
from cape.algorithms.unmixing import Unmixing
from cape.algorithms.whitening import LogEuclidean, Whitener
from cape.computations.ica.settings import LeftRightConfig
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.settings.option import option


class Solver(Estimator[Unmixing], Protocol):
    """The estimator of the rounds, as it is planned."""

    def after(self, released: Subspace | None, whitened: Whitener | None) -> Estimator[Unmixing]:
        """Return it with what the stages before it released."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeDjicaConfig(LeftRightConfig):
    """Settings of capedjica."""

    n_looks: int = option(0, low=0, high=10, expert=True)
    prewhiten: Literal["ar1", "none"] = option("ar1", expert=True)
    score: Literal["volatility", "tanh"] = option("volatility", expert=True)
    n_rounds: int = option(40, low=1, high=2000, expert=True)
    shares: str = option("auto", expert=True)
    clip_schedule: str = option("auto", expert=True)
    step_limit: float = option(0.0, low=0.0, high=10.0, expert=True)
    round_mu: float = option(0.0, low=0.0, high=100.0, expert=True)

    def check(self) -> None:
        LeftRightConfig.check(self)
        numbers("shares", self.shares, 3)
        numbers("clip_schedule", self.clip_schedule, 2)

    # Methods, not functions of the stages: a computation of the papers has the same stages with
    # other algorithms (`cape.papers.computations.paperdjica`).
    def make_pca(self) -> Estimator[Subspace]:
        return ProjectorPca(n_components=self.n_components, private=self.private)

    def make_whitening(
        self, fixed: TunedConstants, released: Subspace | None
    ) -> Estimator[Whitener]:
        """Return the estimator of the common whitening; `released` is None while planning."""
        return LogEuclidean(n_looks=fixed.n_looks, clip=fixed.whitening_clip, private=self.private)

    def make_solver(self, fixed: TunedConstants) -> Solver:
        return QuasiNewton(
            n_rounds=self.n_rounds,
            clips=fixed.clips,
            step_limit=fixed.step_limit,
            alpha_first=fixed.alpha_first,
            alpha_last=fixed.alpha_last,
            private=self.private,
            score=self.score,
            dither=fixed.dither if self.is_dithered() else 0.0,
        )

    def is_dithered(self) -> bool:
        """Whether rounds are asked at W turned by public angles, and judged by the answers."""
        return self.private and self.score == "volatility"


def numbers(name: str, text: str, count: int) -> tuple[float, ...]:
    """Return the numbers of ``"0.4,0.3,0.3"``, () for ``"auto"``; positive, else ConfigError."""
    if text == "auto":
        return ()
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != count or not all(math.isfinite(v) and v > 0 for v in values):
        allowed = f"auto, or {count} numbers above 0 separated by commas"
        do = "such as " + ",".join(["0.3"] * count)
        raise ConfigError("E011", setting=name, got=text, allowed=allowed, do=do)
    return values
