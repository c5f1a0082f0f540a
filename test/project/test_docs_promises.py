"""Every promise of docs/threat-model.md names a test that exists, and that really runs."""

import math
import re
from pathlib import Path
from statistics import NormalDist

import pytest

from cape.privacy.accounting import gdp_epsilon, gdp_mu
from cape.privacy.cost import Cost, total_cost
from cape.protocol.plan import noise_shares_of
from cape.settings.config import Config
from cape.site.policy import SitePolicy, pair_text

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
IN_A_FILE = re.compile(r"`(test/[^`]+\.py)`((?: `test_[a-z0-9_]+`)+)")
TOLD = PAGE.partition("## How each promise is tested")[2].partition("\n## ")[0]
ATTACKS = PAGE.partition("## Attacks, and what they learn")[2].partition("\n## ")[0]
# A promise, and files each with some of its tests
PROMISES = re.findall(r"^- ([^`]+): (`test/.+`)$", TOLD, re.MULTILINE)
# attacker, what they may do, what they learn, tests
ROWS = re.findall(r"^- \*\*([^*]+)\*\* (.+): \*([^*]+)\* (`test/.+`)$", ATTACKS, re.MULTILINE)


def named_in(cells: list[str]) -> list[tuple[str, str]]:
    """Return file and name of every test that the cells name."""
    return [
        (file, test)
        for cell in cells
        for file, tests in IN_A_FILE.findall(cell)
        for test in re.findall(r"`(\w+)`", tests)
    ]


SHOWN, PLAYED = named_in([row[-1] for row in PROMISES]), named_in([row[-1] for row in ROWS])


def test_every_promise_and_every_attack_of_the_page_is_read() -> None:
    for text, rows, tests in ((TOLD, PROMISES, SHOWN), (ATTACKS, ROWS, PLAYED)):
        assert len(re.findall("^- ", text, re.MULTILINE)) == len(rows) >= 18
        assert len({test for _, test in tests}) == len(tests) == text.count("`test_")
    assert len(SHOWN) >= 43
    assert len(PLAYED) >= 110


def learned_of_one(S: int) -> str:
    """Epsilon of one real site among S - 1 invented ones, at a claimed epsilon 1."""
    shares = noise_shares_of(Config(epsilon=1.0, delta=1e-5), S)
    alone = Cost.of_mu(gdp_mu(epsilon=1.0, delta=1e-5)).if_unknown(1, noise_shares=shares)
    return f"{alone.epsilon(1e-5):.3f}"


def learned_of_runs(n: int) -> str:
    """Epsilon of n runs, each at a claimed epsilon 1."""
    one = Cost.of_mu(gdp_mu(epsilon=1.0, delta=1e-5))
    return f"{total_cost([one] * n).epsilon(1e-5):.3f}"


def learned_behind(shares: int, answers: int = 1) -> str:
    """Epsilon at S = 4 and a claimed epsilon 1, where so many shares of the noise are unknown."""
    planned = noise_shares_of(Config(epsilon=1.0, delta=1e-5), 4)
    one = Cost.of_mu(gdp_mu(epsilon=1.0, delta=1e-5)).if_unknown(shares, noise_shares=planned)
    return f"{total_cost([one] * answers).epsilon(1e-5):.3f}"


def bits_of_refusals(n_runs: int) -> str:
    patterns = sum(math.comb(n_runs, k) for k in range(SitePolicy().max_refusals + 1))
    return f"{math.log2(patterns):.1f}"


def test_every_figure_of_the_attacks_comes_from_the_code() -> None:
    """A row without one learns nothing, and says so."""
    shipped = SitePolicy()
    known = {
        f"epsilon {learned_of_one(4)} at S = 4", f"{learned_of_one(shipped.max_sites)} at S = 20",
        f"epsilon {learned_behind(2)} at S = 4",
        f"epsilon {learned_behind(1, 2)} at S = 4, at most",
        f"epsilon {learned_of_runs(2)} for two", f"{learned_of_runs(20)} for 20",
        f"{bits_of_refusals(1000)} bits", f"`max_refusals` ({shipped.max_refusals} bits)",
        f"epsilon {pair_text(shipped.max_total[0])} over all", "epsilon 1, as claimed", "0 bits",
    }  # fmt: skip
    assert shipped.max_sites == 20
    used = set()
    for _, _, learned, test in ROWS:
        found = {figure for figure in known if figure in learned}
        assert found, (test, learned)
        # No number stands there that is not one of these.
        rest = learned
        for figure in found:
            rest = rest.replace(figure, "")
        assert not re.search(r"\d", rest), (test, rest)
        used |= found
    assert used == known


@pytest.mark.parametrize(("file", "test"), [*SHOWN, *PLAYED], ids=str)
def test_every_promise_and_every_attack_names_a_test_that_exists(file, test) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")
    found = re.search(rf"((?:^@[^\n]*\n)*)^def {test}\(", source, re.MULTILINE)
    assert found, (file, test)
    assert "skip" not in found.group(1)


@pytest.mark.parametrize("path", sorted((ROOT / "test" / "adversary").glob("test_*.py")), ids=str)
def test_every_attack_stands_in_the_table(path) -> None:
    """Whoever it is of: a limit that a test states and the table does not is no table."""
    played = re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE)
    file = path.relative_to(ROOT).as_posix()
    assert {test for where, test in PLAYED if where == file} == set(played) != set()


def test_what_is_not_promised_is_said_and_reporting_is_explained() -> None:
    missing = PAGE.partition("## Not promised")[2].partition("\n## ")[0]
    for word in ("Timing", "lies about keys", "Floating point", "private=false", "S_C"):
        assert word in missing, word
    security = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for word in (
        "Report it privately",
        "docs/threat-model.md",
        "make test-trust",
        "never send real",
    ):
        assert word in " ".join(security.split()), word


LIMIT = re.compile(r'^- <a id="(limit-[a-z-]+)"></a>', re.MULTILINE)


def test_every_limit_of_the_promise_is_one_of_the_threat_model_and_the_other_way_round() -> None:
    of_promise = LIMIT.findall((ROOT / "docs" / "promise.md").read_text(encoding="utf-8"))
    of_model = LIMIT.findall(PAGE)
    assert len(of_model) >= 16
    assert of_promise == of_model


def test_one_real_site_among_invented_ones_learns_its_figure_from_the_page() -> None:
    """What the plan of a run gives to a site whose S - 1 fellows are the aggregator's own."""
    rows = re.findall(r"^\| (\d+) \| (\d+) \| 1 of (\d+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert [int(sites) for sites, *_ in rows] == [3, 4, 10, 100, 1000, 10000]
    for sites, colluders, shares, epsilon in rows:
        config = Config(epsilon=1.0, delta=1e-5, n_sites=int(sites))
        assert int(colluders) == config.colluders(int(sites))
        h = noise_shares_of(config, int(sites))
        assert int(shares) == h
        alone = Cost.of_mu(gdp_mu(epsilon=1.0, delta=1e-5)).if_unknown(1, noise_shares=h)
        assert epsilon == f"{alone.epsilon(1e-5):.6f}"


def right_in_all_runs() -> str:
    """Share of even bets won by the best guesser who has all runs of the shipped total."""
    ((epsilon, delta),) = SitePolicy().max_total
    return f"{100 * NormalDist().cdf(gdp_mu(epsilon=epsilon, delta=delta) / 2):.1f}"


def promised(page: str) -> set[str]:
    """Find every percentage that a page says of all runs together."""
    return set(re.findall(r"(?:together|it) is right in (?:at most )?([\d.]+) %", page))


def test_what_epsilon_means_stands_once_and_every_other_page_quotes_it() -> None:
    """One page said 55 and 80 %, the page for boards 73 and 99.97 of the same epsilon.

    The second was exp(epsilon) as odds, which a Gaussian mechanism does not allow.
    """
    of_promise = dict(re.findall(r"\| ([\d.]+) \| [\d.]+ \| (\d+) % \|", read("docs/promise.md")))
    board = read("docs/ethics.md")
    quoted = dict(re.findall(r"\| ([\d.]+) \| ([\d.]+) % \|", board))
    assert len(quoted) >= 6
    assert quoted.items() <= of_promise.items()
    for page in ("docs/ledger.md", "docs/decisions.md"):
        told = re.findall(r"epsilon (\d+)[^.:;]*?best guesser is right in (\d+) %", read(page))
        said = told or re.findall(r"Epsilon (\d+) .*?right in (\d+) %", read(page))
        assert said, page
        assert all(of_promise[epsilon] == right for epsilon, right in said), page
    assert promised(board) == {right_in_all_runs()}
    ((run, _),), ((total, _),) = SitePolicy().max_run, SitePolicy().max_total
    for page in ("docs/faq.md", "docs/deploying.md"):
        told = re.findall(r"epsilon (\d+) a run and (\d+) over all runs", read(page))
        assert told == [(f"{run:g}", f"{total:g}")], page
    governance = read("docs/governance.md")
    row = governance.partition("| epsilon |")[2].partition("| delta |")[0]
    listed = dict(re.findall(r"(\d+): (?:the best guesser is right in )?(\d+) %", row))
    assert len(listed) == 5
    assert listed.items() <= of_promise.items()
    gains = dict(re.findall(r"at (?:epsilon )?(\d+) he gains (\d+)", governance))
    assert gains == {epsilon: str(int(of_promise[epsilon]) - 50) for epsilon in ("1", "8")}
    assert promised(governance) == {right_in_all_runs()}
    assert f"`min_group` ({SitePolicy().min_group})" in governance
    # Who can be invented: one figure, wherever it stands.
    for page in ("README.md", "docs/promise.md", "docs/threat-model.md", "docs/governance.md"):
        text = read(page)
        assert "invent none" not in text
        assert learned_of_one(4) in text, page


def test_what_the_page_for_boards_says_of_the_shipped_policy_follows_from_it() -> None:
    """It called 8 a limit for many studies together, and the policy let one run spend 8."""
    board, policy = read("docs/ethics.md"), SitePolicy()
    ((run, run_delta),), ((total, delta),) = policy.max_run, policy.max_total
    right = 100 * NormalDist().cdf(gdp_mu(epsilon=run, delta=run_delta) / 2)
    assert f"one study spend up to epsilon {run:g} (right in {right:.1f} %)" in board
    assert f"together up to {total:g} ({right_in_all_runs()} %)" in board
    all_runs = gdp_mu(epsilon=total, delta=delta)
    leaves = re.findall(r"one of (\d+) leaves ([\d.]+)(?=[\s,.])", board)
    leaves += re.findall(r"So (\d+) is a limit.*?room for epsilon ([\d.]+)", board)
    assert len(leaves) == 3
    for spent, left in leaves:
        mu = gdp_mu(epsilon=float(spent), delta=delta)
        exact = gdp_epsilon(mu=math.sqrt(all_runs**2 - mu**2), delta=delta)
        # Rounded down: a run of 9.61 was refused, 9.6087 were left.
        assert float(left.rstrip(".")) == math.floor(100 * exact) / 100, spent
    assert f"{run:g} is the shipped limit of a run" in read("README.md")


def read(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def test_every_figure_of_the_page_on_epsilon_is_that_of_the_accountant() -> None:
    # Three of six mu were typed wrong, and two runs at epsilon 1 were said to cost 1.44.
    page = " ".join((ROOT / "docs" / "promise.md").read_text(encoding="utf-8").split())
    rows = re.findall(r"\| ([\d.]+) \| ([\d.]+) \| (\d+) % \|", page)
    assert [epsilon for epsilon, _, _ in rows] == ["0.5", "1", "2", "4", "8", "16"]
    for epsilon, mu, right in rows:
        exact = gdp_mu(epsilon=float(epsilon), delta=1e-5)
        assert mu == f"{exact:.3g}".removeprefix("0")
        assert right == f"{math.ceil(100 * NormalDist().cdf(exact / 2))}"
    (twice,) = re.findall(r"twice epsilon 1 is epsilon ([\d.]+), not 2", page)
    both = math.sqrt(2) * gdp_mu(epsilon=1.0, delta=1e-5)
    assert twice == f"{gdp_epsilon(mu=both, delta=1e-5):.3f}"
    ((bits, runs),) = re.findall(r"ended: ([\d.]+) bits of (\d+) runs", page)
    most = SitePolicy().max_refusals
    assert f"`max_refusals` ({most})" in page
    ways = sum(math.comb(int(runs), k) for k in range(most + 1))
    assert bits == f"{math.log2(ways):.1f}"
    ((run, delta, mu),) = re.findall(
        r"runs up to epsilon (\d+) at delta (1e-\d), mu ([\d.]+),", page
    )
    assert SitePolicy().max_run == ((float(run), float(delta)),)
    assert mu == f"{gdp_mu(epsilon=float(run), delta=float(delta)):.4g}"
    ((total, delta, mu),) = re.findall(
        r"and up to epsilon (\d+) at delta (1e-\d), mu ([\d.]+),", page
    )
    assert SitePolicy().max_total == ((float(total), float(delta)),)
    assert mu == f"{gdp_mu(epsilon=float(total), delta=float(delta)):.5g}"
    assert f"epsilon 1 tells {learned_of_one(4)}." in page
    # The same of the shipped limits, among four sites and the most that the policy lets take part
    for budget in (8.0, 10.0):
        for S in (4, SitePolicy().max_sites):
            shares = noise_shares_of(Config(epsilon=1.0, delta=1e-5), S)
            mu = gdp_mu(epsilon=budget, delta=1e-5) * math.sqrt(shares)
            right = f"{100 * NormalDist().cdf(mu / 2):.{2 if S > 4 else 1}f} %"
            told = f"{gdp_epsilon(mu=mu, delta=1e-5):.1f} ("
            assert re.search(rf"{re.escape(told)}(right in )?{re.escape(right)}\)", page), told
    assert f"of epsilon 1, 20 restores tell {learned_of_runs(20)}." in page
    assert promised(page) == {right_in_all_runs()}
    (asked,) = re.findall(r"cape account --mu ([\d.]+)", page)
    assert float(asked) == round(gdp_mu(epsilon=1.0, delta=1e-5), 4)
