"""The form for an ethics board and the text for participants, filled from a run's settings.

Every figure is computed: from the budget, the number of sites and a site's policy.
"""

import tomllib
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from cape.errors import ConfigError
from cape.planning.consortium_folder import OwnerSettings
from cape.planning.judge import judge_config, why_refused
from cape.privacy.accounting import display_guesses, gdp_mu
from cape.privacy.cost import Cost
from cape.protocol.plan import noise_shares_of
from cape.report.page import text_of
from cape.site.policy import SitePolicy, pair_text

# computation -> language -> what is published
BOARD_TEXTS: Final = tomllib.loads(Path(__file__).with_name("board.toml").read_text("utf-8"))
# groups or values -> language -> what a comparison asks
ASKED_TEXTS: Final = BOARD_TEXTS.pop("asked")


def board_facts(
    owner: OwnerSettings, *, n_sites: int, policy: SitePolicy, aggregator: str = ""
) -> dict[str, Any]:
    """Return what the form and the text for participants say of a run, by their names there.

    ConfigError for settings without a promise, or that `judge` refuses.
    """
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
    columns = () if question is None else map(question.variable, public)
    levels = [level for column in columns for level in column.levels]
    return {
        "computation": computation.name,
        "published": {  # by language
            language: text.format(asked=ASKED_TEXTS["groups" if groups else "values"][language])
            for language, text in BOARD_TEXTS[computation.name].items()
        },
        # What a comparison asks, as columns are called
        "terms": ", ".join(term.text for term in asked),
        "n_sites": n_sites,
        "colluders": config.colluders(n_sites),
        # Whether the noisy sum of each site is seen, not only that of all
        "single_sums": single_sums,
        "budget": f"epsilon {pair_text((config.epsilon, config.delta))}",
        "mu": mu,
        # Percent of even bets that the best guesser wins: of this run, and of all runs that the
        # policy allows on the same people, whose limit is `total`; empty without one
        "right": display_guesses(mu),
        "right_of_all": display_guesses(min(pairs)) if pairs else "",
        "total": f"epsilon {pair_text(pairs[min(pairs)])}" if pairs else "",
        # If the aggregator plays all other sites; None: it cannot
        "epsilon_if_invented": invented,
        # Columns whose counts by site are exact, and their levels
        "public": public,
        "groups": levels,
        "asks_groups": question is not None,
        "min_group": policy.min_group,
        # Exact answers that one owner gets unpaid on whether most people pass, 0: none; without a
        # limit, a number that says so
        "stops": (policy.max_refusals or 1000) * (policy.stop_if_most_fail or policy.stop_for_data),
        "aggregator": aggregator,  # empty: a blank to fill in
        # Why this policy refuses such a run; empty if it does not
        "refused": why_refused(policy, computation, config, n_sites),
    }


def board_texts(facts: Mapping[str, Any], languages: tuple[str, ...]) -> str:
    """Return the form for the board, then the text for participants in each language; Markdown."""
    texts = [text_of("board.md.j2", about=facts)]
    texts += [text_of(f"participants_{name}.md.j2", about=facts) for name in languages]
    return "\n".join(texts)
