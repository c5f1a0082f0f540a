"""``noise=local`` in whole runs: every site by itself, all of the noise, nothing hidden."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cape.computations import load
from cape.errors import CapeError, CapeWarning, ConfigError, ConsortiumError, PrivacyBudgetError
from cape.protocol.messages import Masked, Released
from cape.protocol.phases import advance_aggregator
from cape.simulation import memory as driver
from cape.simulation.simulate import refused_by_policies
from cape.site.policy import SitePolicy
from support import consortium, tiny
from support.simulation import simulate

SEED = 3


def local(**given: object) -> Any:
    return tiny.settings(noise="local", **given)


def replies(link: Any, monkeypatch: pytest.MonkeyPatch, change: Any = None) -> dict[Any, Any]:
    """All replies of a run by phase and round; `change` may damage them."""
    seen: dict[Any, Any] = {}

    def watch(run: Any, inbox: Any, party: Any) -> Any:
        seen[run.cursor.phase, run.cursor.round] = {s: e.body for s, e in inbox.items()}
        if change is not None and run.cursor.phase == "mean":
            inbox = {s: replace(e, body=change(e.body)) for s, e in inbox.items()}
        return advance_aggregator(run, inbox, party)

    monkeypatch.setattr(driver, "advance_aggregator", watch)
    return seen


def test_each_site_sends_its_own_sum_under_all_of_the_noise(monkeypatch) -> None:
    data = tiny.data_of(4)
    link = tiny.link_of(local(), data, seed=SEED)
    seen, drawn = replies(link, monkeypatch), tiny.draws(monkeypatch)
    found = tiny.released(link)
    n_subjects = sum(map(len, data.values()))
    for event in link._state.model.roster.plan:
        assert event.shares == 1
        total = np.zeros(tiny.SIZE)
        for site, reply in seen["mean", event.round].items():
            assert isinstance(reply, Released)
            own = tiny.plain_mean(link, data, [site]) * event.gamma * len(data[site])
            np.testing.assert_array_equal(reply.total, np.rint(own) + drawn.pop(0))
            total += reply.total
        np.testing.assert_array_equal(found[event.round].mean, total / (event.gamma * n_subjects))
    assert {type(r) for r in seen["zero-sum.probe", 1].values()} == {Masked}


def test_the_charge_of_a_site_does_not_count_on_the_others() -> None:
    """Same epsilon, h times the variance per site: h = t - S_C = 3 of 4 sites share otherwise."""
    alone, shared = (tiny.link_of(c, tiny.data_of(4)) for c in (local(), tiny.settings()))
    for link in (alone, shared):
        tiny.released(link)
    one, other = (link._state.ledger.events[0] for link in (alone, shared))
    assert one.cost.mu2 == Fraction(one.delta_int**2, one.variance)
    assert other.cost.mu2 == Fraction(other.delta_int**2, 3 * other.variance)
    ratio = (one.variance / 4.0**one.log2_gamma) / (other.variance / 4.0**other.log2_gamma)
    assert ratio == pytest.approx(3.0, rel=1e-6)
    assert alone._state.ledger.spent <= alone._state.ledger.budget.cost


def test_without_noise_the_masks_stay(monkeypatch) -> None:
    """private=false promises nothing, yet a single site's sum is still nobody's business."""
    link = tiny.link_of(local(private="false"), tiny.data_of(3))
    seen = replies(link, monkeypatch)
    tiny.released(link)
    assert {type(reply) for reply in seen["mean", 1].values()} == {Masked}


def test_a_lost_site_ends_the_run_unless_sites_may_drop_out(monkeypatch) -> None:
    drops = [driver.Drop(site="site1", phase="mean", round=2)]
    with pytest.raises(ConsortiumError, match="E156 Site site1"):
        tiny.released(tiny.link_of(local(), tiny.data_of(4), drops=drops))
    link = tiny.link_of(local(aggregation="secagg"), tiny.data_of(4), drops=drops)
    seen = replies(link, monkeypatch)
    assert len(tiny.released(link)) == tiny.ROUNDS
    assert {type(reply) for reply in seen["mean", 1].values()} == {Masked}


def test_a_reply_of_another_length_or_beyond_the_bound_is_refused(monkeypatch) -> None:
    for change, text in (
        (lambda body: replace(body, total=body.total[:-1]), "numbers, needed 4"),
        (lambda body: replace(body, total=body.total + 2**60), "E22"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            link = tiny.link_of(local(), tiny.data_of(3))
            replies(link, patch, change)
            with pytest.raises(CapeError, match=text):
                tiny.released(link)


def test_one_site_alone_runs_with_its_own_noise_only(tmp_path) -> None:
    """The papers' "local": min_sites=1, one site, its own budget; files and page as ever."""
    data = consortium.write_data(tmp_path / "data", {"local0": consortium.subjects(5, seed=1)})
    chosen = consortium.settings_of(
        "capemean", computation="capemean", noise="local", min_sites=1
    )  # fmt: skip
    folder = simulate(data, out=tmp_path / "out", settings=chosen, seed=1)
    text = (folder / "privacy.json").read_text()
    assert '"n_sites": 1' in text
    assert '"assumed_colluders": 0' in text
    assert "noisy by themselves" in text


@pytest.mark.parametrize("private", [True, False])
def test_the_folder_of_one_lab_is_simulated_as_it_is(tmp_path, private: bool) -> None:
    """It took E104, then E152, then E012, each proposing what had been given."""
    data = consortium.write_data(tmp_path, {"mylab": consortium.subjects(5, seed=1)}) / "mylab"
    chosen = consortium.settings_of("capemean", computation="capemean", private=private)
    with pytest.warns(CapeWarning, match="one site: any noise is all its own"):
        folder = simulate(data, out=tmp_path / "out", settings=chosen)
    stated = json.loads((folder / "privacy.json").read_text())
    assert stated["private"] is private
    assert stated["n_sites"] == 1
    assert (tmp_path / "out" / "mylab" / "cape-site.json").is_file()
    # Its own sum is no secret in one lab; all else is said as ever.
    assert "noise" not in str(refused_by_policies(data, chosen))


def test_one_site_alone_needs_all_of_the_noise() -> None:
    with pytest.raises(ConfigError, match="use noise=local"):
        tiny.settings(min_sites=1)


def test_a_real_site_may_not_be_alone_with_an_owner_without_noise() -> None:
    """Without partners a site's sum has no masks: its policy says whether it may be seen."""
    policy = SitePolicy(allow_not_private=True)
    policy.check_settings("a", "capemean", tiny.settings(private=False))
    with pytest.raises(PrivacyBudgetError, match="got min_sites=1"):
        policy.check_settings("a", "capemean", tiny.settings(private=False, min_sites=1))


def test_a_site_that_refuses_ends_the_run_at_the_last_good_state() -> None:
    run = consortium.Consortium("capemean", noise="local").until("histogram")
    party = run.parties["local1"]

    def refuse(event: Any) -> None:
        raise PrivacyBudgetError("E154", site="local1")

    party.charge = refuse
    run.play()
    assert run.outcome.status == "budget_exhausted"
    assert load("capemean").name == run.outcome.computation
