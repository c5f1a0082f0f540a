"""capePCA (Imtiaz et al., Alg. 3) alone: private PCA of bounded records from one secure sum.

Every subject answers with the second moment of its own columns; the sum over subjects carries as
much noise as if one place held all data (correlated noise, Lemma 1).  For comparison:
``noise=local`` is the conventional scheme ("full" of DPdisPCA: every site adds all the noise),
``noise=local min_sites=1`` on one folder is local DP-PCA, and on all data in one folder pooled
DP-PCA.  Not iterative, one release.
"""

from __future__ import annotations

from cape.computations._second_moment import MOMENT, PcaConfig, PcaModel, outcome, plan_run, verify
from cape.frozen import dataclass
from cape.protocol.join import join
from cape.protocol.model import progress
from cape.protocol.outcome import Outcome
from cape.protocol.phases import Computation
from cape.protocol.ports import Aggregator
from cape.protocol.report_phase import nothing_for_sites, report
from cape.protocol.zero_sum import ZeroSum


@dataclass(frozen=True, kw_only=True, slots=True)
class CapePcaConfig(PcaConfig):
    """Settings of capepca."""


def _outcome(party: Aggregator, model: PcaModel) -> Outcome:
    return outcome("capepca", party, model, note="One sum over all subjects.")


COMPUTATION = Computation(
    name="capepca",
    cite="Imtiaz et al., Alg. 3",
    config=CapePcaConfig,
    model=PcaModel,
    start=PcaModel,
    progress=progress,
    table=(
        join("capepca", plan_run, then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(verify, then="moment"),              # PublicKey -> KeyBook; probe -> Fingerprint
        MOMENT,                                      # Masked -> Principal
        report(nothing_for_sites, _outcome),         # Done -> Closing
    ),
)  # fmt: skip
