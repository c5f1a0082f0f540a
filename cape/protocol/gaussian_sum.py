"""Gaussian zero-sum noise: Imtiaz et al., Alg. 1 and 2, in exact integers (``zero_sum=gaussian``).

``X.zero-sum`` is a secure sum of seeds e_hat_s ~ N_Z(0, r s2), pure noise that costs no budget; its
result T is broadcast.  In ``X`` every site then sends S (x_s + g_s) + S e_hat_s - T, which is
S (x_s + g_s + e_s) with e_s = e_hat_s - T / S kept whole; over all sites the seeds cancel exactly.
Every site's reply is seen, so a release is charged with r (`cape.privacy.event.Event.cost`).
A missing site ends the run: the others' e_s would not cancel.  Source: docs/threat-model.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np

from cape.config import Config
from cape.errors import MessageError, SecureAggregationError, StateLostError
from cape.frozen import dataclass
from cape.privacy.event import Event
from cape.privacy.mechanisms import overflow_bound, seed_bound
from cape.privacy.sampler import discrete_gaussian
from cape.protocol.messages import Masked, Released, SeedSum
from cape.protocol.model import Model, attendance, joined
from cape.protocol.phases import AnyPhase, Phase
from cape.protocol.ports import Aggregator, Site
from cape.protocol.zero_sum import hide
from cape.secagg.field import Integers, decode_sum

SEED = "seed"
M = TypeVar("M", bound=Model)


@dataclass(frozen=True, kw_only=True, slots=True)
class GaussianSum(Generic[M]):
    """Two phases of a table: the sum of the seeds, then the release.

    Attributes
    ----------
    name : str
        Of the release.
    broadcast : type
        Of its result.
    event, size : callable
        ``event(party, model)``: the planned release; ``size(config, model)``: its length.
    noisy : callable
        ``noisy(site, model)``: x + g, charged; None if the site refuses.
    charge : callable
        ``charge(party, model)``: put the release on the aggregator's record.
    step : callable
        ``step(party, model, total)``: the result of a sum over all sites, and the next phase.
    stopped : callable
        ``stopped(config, model, site)``: the same if a site refused.
    absorb, check : callable
        As in `Phase`.
    then : tuple of str
        What may open after the release.
    """

    name: str
    broadcast: type
    event: Callable[[Site | Aggregator, M], Event]
    size: Callable[[Config, M], int]
    noisy: Callable[[Site, M], Integers | None]
    charge: Callable[[Aggregator, M], object]
    step: Callable[[Aggregator, M, Integers], tuple[Any, str | None]]
    stopped: Callable[[Config, M, str], tuple[Any, str | None]]
    absorb: Callable[[M, Any], M]
    then: tuple[str, ...]
    check: Callable[[M, Any], None]

    def phases(self) -> tuple[AnyPhase, ...]:
        """Return both phases."""
        return (
            Phase(
                name=f"{self.name}.zero-sum",
                reply=Masked,
                broadcast=SeedSum,
                answer=self._seed,
                combine=self._sum_seeds,
                absorb=lambda model, seeds: replace(model, seed_sum=seeds),
                then=(self.name,),
                attendance=attendance,
            ),
            Phase(
                name=self.name,
                reply=Released,
                broadcast=self.broadcast,
                answer=self._answer,
                combine=self._combine,
                absorb=lambda model, state: self.absorb(replace(model, seed_sum=None), state),
                then=self.then,
                attendance=attendance,
                check=self.check,
            ),
        )

    def _seed(self, site: Site, model: M) -> Masked:
        """Draw e_hat_s and send it masked.  Alg. 1, lines 1 and 2."""
        event, size = self.event(site, model), self.size(site.config, model)
        entropy = site.noise.stream(site.id, event.phase, event.round, "seed")
        seed = discrete_gaussian(event.seed_variance, size, entropy)
        site.keep(SEED, seed.astype("<i8").tobytes())
        return Masked(total=hide(site, model, seed, SEED), refused=False)

    def _sum_seeds(
        self, party: Aggregator, replies: Mapping[str, Masked], model: M
    ) -> tuple[SeedSum, str | None]:
        bound = seed_bound(self.event(party, model), joined(model).n_sites)
        vectors = [reply.total for reply in replies.values()]
        total = decode_sum(vectors, bound=bound)
        if total.shape != (self.size(party.config, model),):
            raise MessageError("E202", problem="the seeds have another length")
        return SeedSum(total=total), self.name

    def _answer(self, site: Site, model: M) -> Released:
        """Return S (x + g) + S e_hat - T.  Alg. 1, line 4, and Alg. 2, line 4."""
        noisy = self.noisy(site, model)
        if noisy is None or model.seed_sum is None:
            return Released(total=np.zeros(0, dtype=np.int64), refused=True)
        stored = site.secret(SEED)
        if not stored:  # a crash came between its use and the answer
            raise StateLostError("E210", site=f"site {site.id}", what="seed of the zero-sum noise")
        seed = np.frombuffer(stored, dtype="<i8").astype(np.int64)
        if not noisy.shape == seed.shape == model.seed_sum.total.shape:
            raise SecureAggregationError("E220", problem="the seeds have another length")
        site.keep(SEED, b"")  # used up
        total = joined(model).n_sites * (noisy + seed) - model.seed_sum.total
        return Released(total=total, refused=False)

    def _combine(
        self, party: Aggregator, replies: Mapping[str, Released], model: M
    ) -> tuple[Any, str | None]:
        self.charge(party, model)  # the sites that answered have charged it, and were seen
        if refusing := [site for site, reply in replies.items() if reply.refused]:
            return self.stopped(party.config, model, refusing[0])
        roster, size = joined(model), self.size(party.config, model)
        for site, reply in replies.items():
            if reply.total.shape != (size,):
                problem = f"site {site} sent {reply.total.shape} numbers, needed {size}"
                raise MessageError("E202", problem=problem)
        bound = overflow_bound(self.event(party, model), roster.n_sites, roster.n_subjects)
        vectors = [reply.total.view(np.uint64) for reply in replies.values()]
        total = decode_sum(vectors, bound=roster.n_sites * bound)
        if np.any(total % roster.n_sites):
            raise SecureAggregationError("E220", problem="the zero-sum noise does not cancel")
        return self.step(party, model, total // roster.n_sites)
