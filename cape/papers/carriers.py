"""The carrier of sums in the papers' mean: Gaussian zero-sum noise in place of masks.

The product's masks modulo 2^64 are the limit of infinite seed variance, which leaks strictly less
(docs/deviations.md, no. 6).  Clip, charge and noise stay in `Release`, as for every carrier.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np

from cape.errors import ConfigError, SecureAggregationError, StateLostError
from cape.frozen import dataclass
from cape.privacy.cost import Event
from cape.privacy.mechanisms import seed_bound
from cape.privacy.noise import discrete_gaussian
from cape.protocol import wire
from cape.protocol.messages import Masked, Released
from cape.protocol.model import joined
from cape.protocol.phases import AnyPhase, Phase
from cape.protocol.ports import Aggregator, Site
from cape.protocol.secure_sum import Next, Release, carried, first_refusal, vectors
from cape.protocol.zero_sum import mask_vector
from cape.secagg.field import Integers, decode_sum
from cape.secagg.keys import DIGEST_BYTES

SEED: Final = "seed"


class ZeroSumSettings:
    """The meaning of the settings `zero_sum` and `seed_ratio`; the model has a field `seed_sum`."""

    # A record cannot inherit from two records with slots, so the computation declares the fields.

    __slots__ = ()
    zero_sum: Literal["ring", "gaussian"]
    seed_ratio: int

    def ratio(self, n_sites: int) -> int:
        """Return r of the Gaussian zero-sum noise; 0 stands for masks, whose r is infinite."""
        return (self.seed_ratio or n_sites) if self.zero_sum == "gaussian" else 0


def check_zero_sum(config: Any) -> None:
    """Raise ConfigError if Gaussian zero-sum noise would not protect under these settings."""
    problem = ""
    if config.aggregation != "all-sites":
        problem = "zero_sum=gaussian with sites that may drop out: e_s would no longer cancel"
    elif not config.private:
        problem = "zero_sum=gaussian with private=false: every site's sum would be seen"
    elif config.noise != "correlated":
        problem = "zero_sum=gaussian with noise=local: it only hides correlated noise"
    if problem and config.zero_sum == "gaussian":
        raise ConfigError("E012", problem=problem, do="use zero_sum=ring.")


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedSum:
    """Broadcast of the first phase: T, the sum of the seeds."""

    total: Integers


def zero_sum_carrier(release: Release[Any]) -> tuple[AnyPhase, ...]:
    """Return the phases that `zero_sum` asks for: a `carrier` of `SecureSum`."""
    gaussian = release.config.ratio(1) > 0
    return GaussianSum(release=release).phases() if gaussian else carried(release)


@dataclass(frozen=True, kw_only=True, slots=True)
class GaussianSum:
    """Gaussian zero-sum noise: Imtiaz et al., Alg. 1 and 2, in exact integers.

    Phase ``X`` sums seeds e_hat_s ~ N_Z(0, r s2) securely; they are noise and cost no budget.  The
    sum T is broadcast.  In ``X.released`` every site sends the integers S (x_s + g_s) + S e_hat_s -
    T, which are S (x_s + g_s + e_s) with e_s = e_hat_s - T / S.  Over all sites the seeds cancel.
    The aggregator sees every reply, so the charge of a release depends on r
    (`cape.privacy.cost.Event.mu2`).  A missing site ends the run: the seeds of the others would not
    cancel.  Source: docs/secure-sum.md.
    """

    release: Release[Any]

    def phases(self) -> tuple[AnyPhase, ...]:
        """Return two phases: the sum of the seeds, then the release."""
        release = self.release
        second = f"{release.name}.released"
        seeds = Phase(
            name=release.name,
            reply=Masked,
            broadcast=SeedSum,
            answer=self._seed,
            combine=self._sum_seeds,
            absorb=lambda model, total: replace(model, seed_sum=total),
            then=(second,),
            fold=Masked.folded,
        )
        answers = release.phase(Released, self._answer, self._combine)
        return (seeds, replace(answers, name=second, absorb=self._absorb))

    def _seed(self, site: Site, model: Any) -> Masked:
        """Draw e_hat_s and send it masked.  Alg. 1, lines 1 and 2."""
        (event,), size = self.release.events(site, model), self.release.size(model)
        line = wire.dumps(wire.encode(event, Event))
        entropy = site.noise.stream("seed", site.transcript, line)
        seed = discrete_gaussian(event.seed_variance, size, entropy)
        # x and g are fixed from here on.  T is public: if the same e_hat hid another x + g under
        # another T, it would cancel in the difference of two replies.
        site.keep(SEED, site.transcript + seed.astype("<i8").tobytes())
        return Masked(total=mask_vector(site, model, seed, SEED), refused=False)

    def _sum_seeds(self, party: Aggregator, replies: Mapping[str, Masked], model: Any) -> Next:
        (event,) = self.release.events(party, model)
        bound = seed_bound(event, joined(model).n_sites)
        replied = vectors(replies, self.release.size(model))
        return SeedSum(total=decode_sum(replied, bound=bound)), f"{self.release.name}.released"

    def _answer(self, site: Site, model: Any) -> Released:
        """Send S (x + g) + S e_hat - T.  Alg. 1, line 4, and Alg. 2, line 4."""
        stored = site.secret(SEED)
        if not stored:
            raise StateLostError("E210", site=f"site {site.id}", what="seed of the zero-sum noise")
        question, seeds = stored[:DIGEST_BYTES], stored[DIGEST_BYTES:]
        noisy = self.release.noisy_sum(site, model, question)
        if noisy is None or model.seed_sum is None:
            empty = np.zeros(0, dtype=np.int64)
            return Released(total=empty, refused=True, refusal=site.refusal)
        seed = np.frombuffer(seeds, dtype="<i8").astype(np.int64)
        if not noisy.shape == seed.shape == model.seed_sum.total.shape:
            raise SecureAggregationError("E220", problem="the seeds have another length")
        # Delete the seed before sending: used twice, it would cancel in the difference of replies.
        site.keep(SEED, b"")
        total = joined(model).n_sites * (noisy + seed) - model.seed_sum.total
        return Released(total=total, refused=False)

    def _combine(self, party: Aggregator, replies: Mapping[str, Released], model: Any) -> Next:
        release, n_sites = self.release, joined(model).n_sites
        size = release.charge(party, model)
        if site := first_refusal(replies):
            return release.stopped(model, site, replies[site].refusal)
        bound = n_sites * release.bound(party, model)
        total = decode_sum(vectors(replies, size), bound=bound)
        # A true sum is S times an integer: with a remainder, some seed differs from the one in T.
        if np.any(total % n_sites):
            raise SecureAggregationError("E220", problem="the zero-sum noise does not cancel")
        return release.step(party, model, total // n_sites)

    def _absorb(self, model: Any, state: Any) -> Any:
        return self.release.absorb(replace(model, seed_sum=None), state)
