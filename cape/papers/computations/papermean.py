"""Private mean with the papers' own noise (Imtiaz et al., Alg. 1 and 2): `capemean` as printed.

Gaussian zero-sum noise hides the sums of sites in place of masks, with r = S in the papers
(``seed_ratio=0``).  The charge assumes that the aggregator sees every site's noisy sum.  Releases
and results are those of `capemean`.
"""

from dataclasses import field, replace
from typing import Literal

from cape.computations.tables import capemean
from cape.frozen import dataclass
from cape.papers.carriers import SeedSum, ZeroSumSettings, check_zero_sum, zero_sum_carrier
from cape.privacy.ledger import Ledger
from cape.protocol.join import by_sizes, join
from cape.protocol.messages import Cursor, Progress
from cape.protocol.outcome import Outcome
from cape.protocol.phases import Computation
from cape.protocol.ports import Aggregator
from cape.protocol.report_phase import nothing_for_sites, report
from cape.protocol.zero_sum import ZeroSum
from cape.settings.config import Config
from cape.settings.option import option

_NAME = "papermean"


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperMeanConfig(ZeroSumSettings, capemean.CapeMeanConfig):
    """Settings of papermean."""

    zero_sum: Literal["ring", "gaussian"] = option("gaussian", group="Privacy")
    seed_ratio: int = option(
        1000, low=0, high=10**6, group="Privacy", when=("zero_sum", "gaussian")
    )

    def check(self) -> None:
        capemean.CapeMeanConfig.check(self)
        check_zero_sum(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperMeanModel(capemean.CapeMeanModel):
    """The model of capemean, with T of Alg. 1 during a release."""

    seed_sum: SeedSum | None = field(default=None, metadata={"omittable": True})

    def progress(self, config: Config, ledger: Ledger | None, cursor: Cursor) -> Progress:
        line = capemean.CapeMeanModel.progress(self, config, ledger, cursor)
        planned = self.roster.plan if self.roster else ()
        # A release with Gaussian zero-sum noise takes one more exchange.
        return replace(line, exchanges=line.exchanges + sum(e.seed_ratio > 0 for e in planned))


def _outcome(party: Aggregator, model: PaperMeanModel) -> Outcome:
    return replace(capemean.outcome(party, model), computation=_NAME)


COMPUTATION = Computation(
    name=_NAME,
    config=PaperMeanConfig,
    model=PaperMeanModel,
    table=(
        join(_NAME, by_sizes(capemean.plan_run), then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(capemean.verify, then="mean"),  # PublicKey -> KeyBook; probe -> Fingerprint
        # Masked -> SeedSum, then Released -> ColumnStatistic
        replace(capemean.MEAN, carrier=zero_sum_carrier),
        replace(capemean.HISTOGRAM, carrier=zero_sum_carrier),
        report(nothing_for_sites, _outcome),  # Done -> Closing
    ),
)
