"""DPdisPCA (Imtiaz and Sarwate, Alg. 1): each site sends a part of its own noisy second moment.

Each site adds the full noise and sends the leading R directions of its moment, scaled by the roots
of their eigenvalues (negative ones count as 0); the aggregator averages.  A site sends D R numbers
instead of D (D + 1) / 2, at S times the noise variance and with a loss by truncation.  The
aggregator sees each site's reply, protected by its own noise; no site may drop out.
``private=false`` sums whole second moments under masks, without truncation.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Literal

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.linalg import order_of_svec, smat, svec
from cape.computations.tables import capepca
from cape.errors import MessageError
from cape.frozen import dataclass
from cape.markers import PUBLIC, RELEASED
from cape.papers.algorithms.covariance import leading_factor
from cape.protocol.join import RunPlan, by_sizes, join
from cape.protocol.messages import FeatureSpace, Refusal
from cape.protocol.model import joined, own_subjects, settings_of
from cape.protocol.outcome import Outcome
from cape.protocol.phases import AnyPhase, Computation
from cape.protocol.ports import Aggregator, Site
from cape.protocol.report_phase import nothing_for_sites, report
from cape.protocol.secure_sum import Next, Release, carried, first_refusal, releases_are_local
from cape.protocol.zero_sum import ZeroSum
from cape.settings.option import option, out_of_range


@dataclass(frozen=True, kw_only=True, slots=True)
class DpDisPcaConfig(capepca.CapePcaConfig):
    """Settings of dpdispca."""

    n_sent: int = option(6, low=1, high=1000)
    noise: Literal["local"] = option("local", group="Privacy")
    aggregation: Literal["all-sites"] = option("all-sites", group="Privacy")

    def check(self) -> None:
        capepca.CapePcaConfig.check(self)
        if self.n_sent < self.n_directions:
            allowed = f"at least n_directions = {self.n_directions}"
            do = "the run finds at most as many directions as a site sends."
            raise out_of_range("n_sent", self.n_sent, allowed, do)


def _plan_run(
    config: DpDisPcaConfig, n_sites: int, n_subjects: int, space: FeatureSpace
) -> RunPlan:
    run_plan = capepca.plan_run(config, n_sites, n_subjects, space)
    n_sent, d = config.n_sent, run_plan.n_basis
    if n_sent > d:
        raise out_of_range("n_sent", n_sent, f"up to {d}", f"the data have {d} directions.")
    return run_plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Reduced:
    """Reply of a site: the leading factor (D, n_sent) of its own noisy moment."""

    values: Annotated[Array, RELEASED]
    refused: Annotated[bool, PUBLIC]
    refusal: Annotated[Refusal, PUBLIC] = field(default="", metadata={"omittable": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class _ReducedSum:
    """The site sends a function of its noisy sum, which costs no further budget."""

    release: Release[Any]

    def phases(self) -> tuple[AnyPhase, ...]:
        return (self.release.phase(Reduced, self._answer, self._combine),)

    def _answer(self, site: Site, model: capepca.PcaModel) -> Reduced:
        noisy = self.release.noisy_sum(site, model)
        if noisy is None:
            return Reduced(values=np.zeros(0), refused=True, refusal=site.refusal)
        (event,) = self.release.events(site, model)
        mean = noisy / (event.gamma * own_subjects(site.id, model))
        config = settings_of(DpDisPcaConfig, site.config)
        return Reduced(values=leading_factor(smat(mean), config.n_sent), refused=False)

    def _combine(
        self, party: Aggregator, replies: Mapping[str, Reduced], model: capepca.PcaModel
    ) -> Next:
        release, roster = self.release, joined(model)
        size = release.charge(party, model)
        if site := first_refusal(replies):
            return release.stopped(model, site, replies[site].refusal)
        shape = (order_of_svec(size), settings_of(DpDisPcaConfig, party.config).n_sent)
        mean = np.zeros(size)
        for entry in roster.sites:
            sent = replies[entry.site].values
            # Check the shape before allocating: the array comes from a site.
            if sent.shape != shape:
                problem = f"a site sent {sent.shape} numbers, needed {shape}"
                raise MessageError("E202", problem=problem)
            mean += svec(sent @ sent.T) * (entry.n_subjects / roster.n_subjects)
        (event,) = release.events(party, model)
        noise_std = event.noise_std(roster.n_sites, roster.n_subjects)
        return release.advance(model, [mean], [noise_std])


def _carrier(release: Release[Any]) -> tuple[AnyPhase, ...]:
    if releases_are_local(release.config):
        return _ReducedSum(release=release).phases()
    return carried(release)


def _outcome(party: Aggregator, model: capepca.PcaModel) -> Outcome:
    note = "Mean of what the sites sent, each the leading part of its own noisy second moment."
    return capepca.outcome("dpdispca", party, model, note=note)


COMPUTATION = Computation(
    name="dpdispca",
    config=DpDisPcaConfig,
    model=capepca.PcaModel,
    table=(
        join("dpdispca", by_sizes(_plan_run), then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(capepca.verify, then="moment"),  # PublicKey -> KeyBook; probe -> Fingerprint
        replace(capepca.MOMENT, carrier=_carrier),  # Reduced -> Principal
        report(nothing_for_sites, _outcome),  # Done -> Closing
    ),
)
