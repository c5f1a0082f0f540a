"""The form for an ethics board and the text for participants, filled from a run's settings.

Every figure is computed: from the budget, the number of sites and a site's policy.
"""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Final

from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.planning.consortium_folder import OwnerSettings
from cape.planning.judge import judge_config, why_refused
from cape.privacy.accounting import gdp_mu, right_guesses
from cape.privacy.cost import Cost
from cape.protocol.plan import noise_shares_of
from cape.report.page import text_of
from cape.site.policy import SitePolicy, pair_text

# computation -> language -> what is published
BOARD_TEXTS: Final = tomllib.loads(Path(__file__).with_name("board.toml").read_text("utf-8"))
# groups or values -> language -> what a comparison asks
ASKED_TEXTS: Final = BOARD_TEXTS.pop("asked")


@dataclass(frozen=True, kw_only=True, slots=True)
class BoardFacts:
    """What the form and the text for participants say of a run."""

    computation: str
    published: dict[str, str]  # by language
    terms: str  # what a comparison asks, as columns are called
    n_sites: int
    colluders: int
    single_sums: bool  # the noisy sum of each site is seen, not only that of all
    budget: str  # epsilon and delta, in words
    mu: float
    right: str  # percent of even bets that the best guesser wins
    right_of_all: str  # the same over all runs that the policy allows on the same people
    total: str  # that limit, in words; empty without one
    epsilon_if_invented: float | None  # if the aggregator plays all other sites; None: it cannot
    public: tuple[str, ...]  # columns whose counts by site are exact
    groups: tuple[str, ...]  # their levels
    asks_groups: bool  # whether it is a comparison
    min_group: int
    stops: int  # exact answers that one owner gets unpaid on whether most people pass; 0: none
    aggregator: str  # who runs it; empty: a blank to fill in
    refused: str  # why this policy refuses such a run; empty if it does not


def board_facts(
    owner: OwnerSettings, *, n_sites: int, policy: SitePolicy, aggregator: str = ""
) -> BoardFacts:
    """Return the facts; ConfigError for settings without a promise, or that `judge` refuses."""
    computation, config = owner.computation, owner.config
    if computation.guarantee != "dp" or not config.private:
        what = "private=false" if computation.guarantee == "dp" else computation.name
        problem = f"{what} promises nothing to a participant"
        raise ConfigError("E016", problem=problem, do="use settings of a run with privacy.")
    if not owner.has_budget:
        do = f"the form states it; write {' and '.join(owner.unset)} into the settings."
        raise ConfigError("E013", setting=owner.unset[0], do=do)
    judge_config(computation, config, n_sites=n_sites)
    mu = gdp_mu(epsilon=config.epsilon, delta=config.delta)
    question = config.question
    public = () if question is None else question.public
    asked = () if question is None else question.asked
    variables = [question.variable(name) for term in asked for name in term.names if question]
    groups = not all(variable.is_range for variable in variables)
    pairs = {gdp_mu(epsilon=e, delta=d): (e, d) for e, d in policy.max_total}
    # Of the papers' computations some send each sum with seeds that cancel, in the clear.
    in_clear = getattr(config, "zero_sum", "ring") == "gaussian"
    single_sums = in_clear or (config.noise == "local" and config.aggregation != "secagg")
    invented = None
    if n_sites > 1 and config.key_trust != "pinned" and config.noise != "local":
        shares, ratio = noise_shares_of(config, n_sites), config.ratio(n_sites)
        alone = Cost.of_mu(mu).if_unknown(1, noise_shares=shares)
        if ratio and alone.mu2 is not None:  # seeds in the clear: as `Event.cost` of one share
            alone = Cost(mu2=alone.mu2 * Fraction(ratio + 1, ratio + shares))
        invented = alone.epsilon(config.delta)
    return BoardFacts(
        computation=computation.name,
        published={
            language: text.format(asked=ASKED_TEXTS["groups" if groups else "values"][language])
            for language, text in BOARD_TEXTS[computation.name].items()
        },
        terms=", ".join(term.text for term in asked),
        n_sites=n_sites,
        colluders=config.colluders(n_sites),
        single_sums=single_sums,
        budget=f"epsilon {pair_text((config.epsilon, config.delta))}",
        mu=mu,
        right=_percent(mu),
        right_of_all=_percent(min(pairs)) if pairs else "",
        total=f"epsilon {pair_text(pairs[min(pairs)])}" if pairs else "",
        epsilon_if_invented=invented,
        public=public,
        groups=tuple(level for name in public for level in question.variable(name).levels)
        if question
        else (),
        asks_groups=question is not None,
        min_group=policy.min_group,
        # Without a limit, a number that says so
        stops=(policy.max_refusals or 1000) * (policy.stop_if_most_fail or policy.stop_for_data),
        aggregator=aggregator,
        refused=why_refused(policy, computation, config, n_sites),
    )


def _percent(mu: float) -> str:
    return f"{100 * right_guesses(mu):.0f}"


def board_texts(facts: BoardFacts, languages: tuple[str, ...]) -> str:
    """Return the form for the board, then the text for participants in each language; Markdown."""
    texts = [text_of("board.md.j2", about=facts)]
    texts += [text_of(f"participants_{name}.md.j2", about=facts) for name in languages]
    return "\n".join(texts)
