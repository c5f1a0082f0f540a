"""Settings of capedjica."""

from __future__ import annotations

import math
from typing import Literal

from cape.algorithms.infomax import BIAS_BOUND, GRADIENT_BOUND, SUBJECT_BOUND
from cape.computations.ica.settings import LeftRightConfig
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.settings.option import option


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeDjicaConfig(LeftRightConfig):
    """Settings of capedjica."""

    pca: Literal["projector", "covariance"] = option("projector", expert=True)
    covariance_clip: float = option(0.3, low=1e-3, high=1.0, when=("pca", "covariance"))
    whitening: Literal["log-euclidean", "eigen"] = option("log-euclidean", expert=True)
    n_looks: int = option(0, low=0, high=10, expert=True)
    prewhiten: Literal["ar1", "none"] = option("ar1", expert=True)
    solver: Literal["quasi-newton", "infomax"] = option("quasi-newton", expert=True)
    score: Literal["volatility", "tanh"] = option("volatility", expert=True)
    n_rounds: int = option(40, low=1, high=2000, expert=True)
    shares: str = option("auto", expert=True)
    clip_schedule: str = option("auto", expert=True)
    step_limit: float = option(0.0, low=0.0, high=10.0, expert=True)
    clip: Literal["subject", "time_point"] = option("subject", when=("solver", "infomax"))
    subject_clip: float = option(SUBJECT_BOUND, low=0.01, high=1000.0, when=("solver", "infomax"))
    gradient_clip: float = option(GRADIENT_BOUND, low=0.01, high=1e6, when=("clip", "time_point"))
    bias_clip: float = option(BIAS_BOUND, low=0.01, high=1e6, when=("clip", "time_point"))
    learning_rate: float = option(0.5, low=1e-4, high=2.0, when=("solver", "infomax"))
    round_mu: float = option(0.0, low=0.0, high=100.0, expert=True)

    def check(self) -> None:
        LeftRightConfig.check(self)
        numbers("shares", self.shares, 3)
        numbers("clip_schedule", self.clip_schedule, 2)
        if self.whitening == "eigen" and self.pca != "covariance":
            problem = "whitening=eigen needs the eigenvalues of pca=covariance"
            do = "eigenvalues of projectors say nothing of variances."
            raise ConfigError("E012", problem=problem, do=do)


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
