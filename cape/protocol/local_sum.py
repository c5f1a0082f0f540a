"""Releases of one site each: ``noise=local``, the conventional scheme that CAPE is compared with.

Every site adds the whole noise by itself, so its own sum is private against everybody and needs no
mask: it is sent as it is (`Released`), and the sum over S sites carries S times the noise variance.
A stage may let each site send less, a function of its own noisy sum (`LocalReduction`), which costs
nothing more.  Without noise there is nothing to hide behind, so ``private=false`` keeps the masks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from cape.algorithms.estimators import Array
from cape.config import Config
from cape.errors import MessageError
from cape.frozen import dataclass
from cape.privacy.event import Event
from cape.privacy.mechanisms import overflow_bound
from cape.protocol.messages import Reduced, Released
from cape.protocol.model import Model, attendance, joined, own_subjects
from cape.protocol.phases import AnyPhase, Phase
from cape.protocol.ports import Aggregator, Site
from cape.secagg.field import Integers, decode_sum

M = TypeVar("M", bound=Model)


def seen_singly(config: Config) -> bool:
    """Tell whether every site's own noisy sum is a release that everybody may see."""
    return config.noise == "local" and config.private and config.aggregation == "all-sites"


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalReduction:
    """What a site sends of its own noisy mean, and what the aggregator makes of it.

    Attributes
    ----------
    reduce : callable
        ``reduce(config, mean)``: from the site's own noisy mean (size,) to what it sends.
    expand : callable
        ``expand(config, sent, size)``: a mean (size,) again; MessageError for a wrong shape.
    """

    reduce: Callable[[Config, Array], Array]
    expand: Callable[[Config, Array, int], Array]


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalSum(Generic[M]):
    """The phase of one release whose sites are seen one by one.

    Attributes
    ----------
    name : str
        Of the release.
    broadcast : type
        Of its result.
    local_reduction : LocalReduction or None
        None: sites send all of their noisy sums.
    event, noisy, charge, step, stopped, absorb, then, check
        As in `cape.protocol.gaussian_sum.GaussianSum`; `charge` returns the length.
    step_of_mean : callable
        ``step_of_mean(party, model, mean)``: as `step`, from a mean over all subjects.
    """

    name: str
    broadcast: type
    local_reduction: LocalReduction | None
    event: Callable[[Site | Aggregator, M], Event]
    noisy: Callable[[Site, M], Integers | None]
    charge: Callable[[Aggregator, M], int]
    step: Callable[[Aggregator, M, Integers], tuple[Any, str | None]]
    step_of_mean: Callable[[Aggregator, M, Array], tuple[Any, str | None]]
    stopped: Callable[[Config, M, str], tuple[Any, str | None]]
    absorb: Callable[[M, Any], M]
    then: tuple[str, ...]
    check: Callable[[M, Any], None]

    def phases(self) -> tuple[AnyPhase, ...]:
        """Return the phase."""
        return (
            Phase(
                name=self.name,
                reply=Released if self.local_reduction is None else Reduced,
                broadcast=self.broadcast,
                answer=self._answer,
                combine=self._combine,
                absorb=self.absorb,
                then=self.then,
                attendance=attendance,
                check=self.check,
            ),
        )

    def _answer(self, site: Site, model: M) -> Released | Reduced:
        noisy = self.noisy(site, model)
        if self.local_reduction is None:
            if noisy is None:
                return Released(total=np.zeros(0, dtype=np.int64), refused=True)
            return Released(total=noisy, refused=False)
        if noisy is None:
            return Reduced(values=np.zeros(0), refused=True)
        mean = noisy / (self.event(site, model).gamma * own_subjects(site.id, model))
        return Reduced(values=self.local_reduction.reduce(site.config, mean), refused=False)

    def _combine(
        self, party: Aggregator, replies: Mapping[str, Released | Reduced], model: M
    ) -> tuple[Any, str | None]:
        size = self.charge(party, model)
        if refusing := [site for site, reply in replies.items() if reply.refused]:
            return self.stopped(party.config, model, refusing[0])
        if self.local_reduction is None:
            return self.step(party, model, self._total(party, replies, model, size))
        roster = joined(model)
        mean = np.zeros(size)
        for entry in roster.sites:
            sent = replies[entry.site]
            if not isinstance(sent, Reduced):
                raise MessageError("E202", problem=f"site {entry.site} sent another message")
            own = self.local_reduction.expand(party.config, sent.values, size)
            mean += own * (entry.n_subjects / roster.n_subjects)
        return self.step_of_mean(party, model, mean)

    def _total(
        self, party: Aggregator, replies: Mapping[str, Released | Reduced], model: M, size: int
    ) -> Integers:
        vectors = []
        for site, reply in replies.items():
            if not isinstance(reply, Released) or reply.total.shape != (size,):
                raise MessageError("E202", problem=f"site {site} sent another length than {size}")
            vectors.append(reply.total.view(np.uint64))
        roster = joined(model)
        bound = overflow_bound(self.event(party, model), roster.n_sites, roster.n_subjects)
        return decode_sum(vectors, bound=bound)
