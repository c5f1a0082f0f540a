"""The computation of comparisons: from tables of sites to answers."""

import csv
import json
import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cape.cli import main
from cape.computations import capecontrast
from cape.computations.capecontrast import (
    CapeContrastConfig,
    asked_counts,
    check_people,
    people_at,
    plan_run,
    question_of,
    regression_of,
    rows_for,
    stages,
    verify,
)
from cape.errors import ConfigError, ConsortiumError, DataError, PrivacyBudgetError
from cape.planning.validate import validate
from cape.privacy.cost import largest_cost, total_cost, total_of
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import RosterEntry, joined
from cape.site.site_data import FileSource
from support import consortium as helper
from support.simulation import simulate

GIVEN: dict[str, Any] = {
    "epsilon": 8.0, "delta": 1e-5, "variables": "dx control/patient, age 18:90, sex m/f",
    "formula": "dx + age + sex", "outcomes": "volume -20:20, score -20:20", "public": "dx",
}  # fmt: skip
MANY = ", ".join(["volume -20:20", "score -20:20", *(f"v{k} -20:20" for k in range(2, 10))])


def config_of(**changed: Any) -> CapeContrastConfig:
    return CapeContrastConfig.from_input({**GIVEN, **changed})


def study(
    folder: Path,
    sizes: tuple[int, ...] = (90, 110, 100),
    *,
    effect: float = 0.0,
    K: int = 2,
    seed: int = 0,
    one_group: int = -1,
) -> Path:
    """Sites whose patients are older and differ by `effect` sd in the first outcome."""
    # At each site somebody is in neither group, and somebody lacks an outcome.
    rng = np.random.default_rng(seed)
    names = ["volume", "score", *(f"v{k}" for k in range(2, K))][:K]
    for s, n in enumerate(sizes):
        case = rng.permutation(n) < n // 2
        if s == one_group:
            case[:] = False
        age = 50 + 12 * rng.standard_normal(n) + 5 * case
        u = rng.standard_normal((n, K)) + 0.02 * (age - 50)[:, None] + rng.standard_normal(K)
        u[:, 0] += effect * case
        lines = ["\t".join(["participant_id", "dx", "age", "sex", *names])]
        for m in range(n):
            dx = "other" if m == 3 else ("control", "patient")[int(case[m])]
            cells = [f"sub-{m:04d}", dx, f"{age[m]:.1f}", "fm"[m % 2]]
            cells += [f"{10 * value:.3f}" for value in u[m]]
            cells[4] = "n/a" if m == 5 else cells[4]
            lines.append("\t".join(cells))
        (folder / f"site{s}").mkdir(parents=True)
        (folder / f"site{s}" / "participants.tsv").write_text("\n".join(lines) + "\n")
        if s == one_group:
            (folder / f"site{s}" / "site-policy.toml").write_text('as_it_is = ["dx"]\n')
    return folder


def rows_of(data: Path, out: Path, **changed: Any) -> list[dict[str, str]]:
    """Return effects.tsv of a run."""
    chosen = {"computation": "capecontrast", **GIVEN, **changed}
    with helper.without_pages():
        simulate(data, out=out, settings=chosen, seed=3)
    with (out / "consortium" / "effects.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def sites(*counts: tuple[int, ...], lacks: tuple[str, ...] = ()) -> tuple[RosterEntry, ...]:
    return tuple(
        RosterEntry(site=f"site{s}", nonce="", n_subjects=sum(n) + 1, counts=n, lacks=lacks)
        for s, n in enumerate(counts)
    )


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"outcomes": "volume -20:20", "test": "pattern"}, "one outcome has no pattern"),
        ({"public": "", "test": "pattern"}, "a column of public"),
        ({"formula": "dx + motion"}, "state it in variables"),
        ({"outcomes": "fnc", "networks": "a, b", "outcomes_from": "gift", "low_pass": 0.0}, ""),
        ({"outcomes": "falff", "networks": "a, b", "low_pass": 0.1}, "low_pass=0.1: allowed 0"),
        ({"outcomes_from": "volumes.tsv"}, "auto, gift"),
        ({"group": "dx: patient, control"}, "E010"),
        ({"n_networks": 3}, "E010"),
        # It ran on exactly those who had withdrawn.
        ({"outcomes_table": "withdrawn.tsv"}, "E010"),
    ],
)
def test_settings_that_cannot_be_asked_are_refused(changed: dict[str, Any], said: str) -> None:
    if not said:
        assert config_of(**changed).asked.of_gift
        return
    with pytest.raises(ConfigError, match=said):
        config_of(**changed)


@pytest.mark.parametrize("setting", ["variables", "formula", "outcomes"])
def test_a_form_that_nobody_filled_is_refused_when_it_is_asked(setting: str) -> None:
    config = config_of(**{setting: " "})
    assert config.question is None
    assert config.counted == ()
    with pytest.raises(ConfigError, match=rf"E013 .*{setting}"):
        _ = config.asked


def test_stages_of_a_pattern_share_the_budget() -> None:
    three = sites((40, 50), (30, 20), (40, 40))
    planned = stages(config_of(), three)
    assert [(stage.phase, stage.part) for stage in planned] == [("contrast", "")]
    assert planned[0].mu2_weight == pytest.approx(1.0)
    design, first, second = stages(config_of(test="pattern"), three)
    assert [(s.phase, s.part) for s in (design, first, second)] == [
        ("design", ""), ("contrast", "A"), ("score", "B"),
    ]  # fmt: skip
    assert design.mu2_weight + first.mu2_weight == pytest.approx(1.0)
    assert first.mu2_weight == pytest.approx(second.mu2_weight)
    bare = stages(config_of(test="pattern", formula="dx"), three)
    assert [stage.phase for stage in bare] == ["contrast", "score"]
    without = stages(config_of(test="pattern", private=False), three)
    assert [stage.phase for stage in without] == ["contrast", "score"]


def test_the_plan_of_halves_is_that_of_the_run_however_they_are_drawn() -> None:
    """Of odd cells a coin decides: a plan that counted people would not fit the halves."""
    # Each budget is the one at which looks begin to fit: counts of a half would go either way.
    entries = sites(*[(3, 4), (5, 2), (7, 7)] * 4)
    for changed in ({}, {"formula": "dx"}, {"site_effects": "random"}):
        low, high = 0.1, 60.0
        for _ in range(16):
            middle = float(np.sqrt(low * high))
            asked = [stages(config_of(test="pattern", epsilon=e, **changed), entries)[-1]
                     for e in (low, middle)]  # fmt: skip
            names = [[one.name for one in stage.releases] for stage in asked]
            low, high = (middle, high) if names[0] == names[1] else (low, middle)
        for epsilon, i in product((0.1, low, high, 60.0), range(16)):
            config = config_of(test="pattern", epsilon=epsilon, **changed)
            planned = stages(config, entries)
            for stage in planned:
                given = None
                if stage.phase != "design" and planned[0].phase == "design":
                    given = regression_of(config, entries, "design").start(0)
                asked = regression_of(config, entries, stage.phase, f"seed {i}", given)
                assert asked.schedule(0) == stage.releases


def test_every_column_that_is_public_is_asked_of_the_policy() -> None:
    config = config_of(public="dx, sex", ask="dx, sex")
    assert config.counted == ("dx", "sex")
    policy = replace(helper.POLICY, public_counts=("dx",))
    with pytest.raises(PrivacyBudgetError, match="E168"):
        policy.check_settings("A", "capecontrast", config)


# -- who is there ----------------------------------------------------------------------------------


def test_levels_groups_and_outcomes_that_are_nowhere_are_named() -> None:
    config = config_of()
    with pytest.raises(ConfigError, match="nobody has dx patient"):
        check_people(config, sites((4, 0), (5, 0)))
    with pytest.raises(ConfigError, match="no site has volume and people of two levels of dx"):
        check_people(config, sites((4, 0), (0, 5)))
    lacking = (*sites((4, 5), lacks=("volume",)), *sites((4, 0), (0, 9))[:2])
    with pytest.raises(ConfigError, match=r"no site has volume and people of two levels of dx"):
        check_people(config, lacking)
    assert check_people(config, sites((4, 5), (3, 0))) == (
        "People of one level of dx only, who add nothing to it: site1.",
    )
    assert check_people(config_of(public=""), sites((), ())) == ()
    with pytest.raises(ConsortiumError, match="E204 outcomes that a site lacks"):
        check_people(config, sites((4, 5), lacks=("hippocampus",)))
    with pytest.raises(ConfigError, match="no site has all outcomes"):
        check_people(config_of(test="pattern"), sites((4, 5), (4, 4), lacks=("score",)))


def test_a_pattern_whose_halves_may_lack_a_level_is_refused_in_join() -> None:
    """Such a half was found after it was charged: a pattern of nothing, or an answer of nothing."""
    people, of_sites = config_of(test="pattern"), config_of(test="pattern", site_effects="random")
    for counts in ([(9, 1)] * 9, [(9, 0), (1, 9)]):
        with pytest.raises(ConfigError, match=r"E150 half .* lack a level of dx .* test = each"):
            check_people(people, sites(*counts))
    check_people(people, sites((9, 1), (2, 2)))
    one = [(9, 9), *[(9, 0)] * 7]
    with pytest.raises(ConfigError, match="set site_effects = fixed, or test = each"):
        check_people(of_sites, sites(*one))
    check_people(people, sites(*one))
    check_people(of_sites, sites((9, 9), (9, 9), *one[2:]))


def test_a_level_of_few_people_is_not_said_and_they_are_not_asked() -> None:
    """A count of 1 to 4 could say who has a rare diagnosis."""
    policy = replace(helper.POLICY, min_group=2)
    run = helper.Consortium("capecontrast", policy=policy, test="each").until("contrast")
    # of (2, 1), (2, 2), (2, 1) people
    assert sorted(entry.counts for entry in joined(run.state.model).sites) == [
        (0, 2), (0, 2), (2, 2)
    ]  # fmt: skip
    site = run.parties["local0"]
    rows = rows_for(site, run.state.model).arrays[0][:, :, 0]
    assert sorted(rows[:, 2].tolist()) == [-1.0, 1.0, 1.0]


def test_what_a_site_lacks_is_said_and_checked() -> None:
    run = helper.Consortium("capecontrast", test="each")
    for site, party in run.parties.items():
        party.source.lacks = ("score",) if site == "local1" else ()
    run.until("contrast")
    roster = joined(run.state.model)
    assert [entry.lacks for entry in roster.sites] == [(), ("score",), ()]
    assert question_of(run.config, run.state.model).terms[0].has.tolist() == [
        [True, True], [True, False], [True, True]
    ]  # fmt: skip
    run.parties["local1"].source.lacks = ()
    with pytest.raises(PrivacyBudgetError, match="other things of this site's people"):
        verify(run.parties["local1"], roster)


# -- runs ------------------------------------------------------------------------------------------


def test_a_planted_difference_is_found_and_others_are_not(tmp_path: Path) -> None:
    found = rows_of(study(tmp_path / "data", effect=1.0), tmp_path / "out")
    assert [row["outcome"] for row in found] == ["volume", "score"]
    volume, score = found
    assert volume["contrast"] == "patient - control"
    assert 6 < float(volume["estimate"]) < 14
    assert float(volume["low95"]) > 0
    assert float(volume["p_holm"]) < 0.01
    assert abs(float(score["estimate"])) < 3 * float(score["se"])
    results = json.loads((tmp_path / "out" / "consortium" / "results.json").read_text())
    assert results["epsilon_planned"] == pytest.approx(8.0)


def test_an_answer_for_sites_like_these_asks_for_their_spread(tmp_path: Path) -> None:
    data = study(tmp_path / "data", (40,) * 8, effect=1.0)
    random = {"outcomes": "volume -20:20", "site_effects": "random", "epsilon": 20.0}
    found = rows_of(data, tmp_path / "out", **random)
    assert float(found[0]["se_sites"]) >= 0
    few = study(tmp_path / "few", (40,) * 3)
    with pytest.raises(ConfigError, match="8 and more"):
        rows_of(few, tmp_path / "o", **random)


def test_of_a_pattern_for_sites_like_these_halves_are_of_sites(tmp_path: Path) -> None:
    """A pattern that is tested where it was found would point at the effects of these sites."""
    data = study(tmp_path / "data", (40,) * 8, effect=1.5)
    many = {"test": "pattern", "site_effects": "random"}
    rows = rows_of(data, tmp_path / "out", epsilon=50.0, **many)
    assert [row["outcome"] for row in rows if row["outcome"] == "pattern"]
    entries = sites(*[(19, 20)] * 8)
    halves = [asked_counts(config_of(**many).asked, entries, part, "seed") for part in ("A", "B")]
    assert [int((half.sum(axis=1) > 0).sum()) for half in halves] == [4, 4]
    assert [int(half.sum()) for half in halves] == [156, 156]


def test_nobody_but_who_types_it_accepts_low_quality(tmp_path: Path) -> None:
    """`cape simulate` set it for the owner, who then read an answer that could not see anything."""
    data = study(tmp_path / "data", (20, 20, 20))
    given = {"computation": "capecontrast", **GIVEN, "epsilon": 1.0}
    with pytest.raises(ConfigError, match="E150"):
        simulate(data, out=tmp_path / "out", settings=given)
    rows_of(data, tmp_path / "low", accept_low_quality=True)
    text = (tmp_path / "low" / "consortium" / "results.json").read_text()
    assert "Of dx, the smallest difference that would be found is " in text


def test_a_comparison_lets_no_site_drop_out() -> None:
    """Weights and halves are of all sites: the answer of fewer would be silently another one."""
    space, entries = FeatureSpace.of_matrix(2), sites(*[(50, 50)] * 7)
    config = config_of(aggregation="secagg", n_sites=7)
    with pytest.raises(ConfigError, match="min_survivors=7"):
        plan_run(config, entries, space)
    all_stay = config_of(aggregation="secagg", min_survivors=7)
    assert plan_run(all_stay, entries, space).releases


# -- privacy ---------------------------------------------------------------------------------------


def test_a_ledger_of_two_halves_bears_the_dearer_one() -> None:
    run = helper.Consortium("capecontrast").play()
    ledger = run.state.ledger
    assert ledger is not None
    halves = [[e.cost for e in ledger.events if e.part in ("", part)] for part in ("A", "B")]
    assert all(halves)
    assert ledger.spent == total_of(ledger.events) == largest_cost(map(total_cost, halves))


def test_everybody_is_in_one_half_and_the_public_sizes_say_how_many() -> None:
    run = helper.Consortium("capecontrast").play()
    roster, seed = joined(run.state.model), run.state.model.fingerprint
    halves = [asked_counts(run.config.asked, roster.sites, part, seed) for part in ("A", "B")]
    assert [entry.counts for entry in roster.sites] == [(1, 2), (2, 2), (1, 2)]
    assert (halves[0] + halves[1]).tolist() == [[1, 2], [2, 2], [1, 2]]


def test_an_aggregator_that_changes_counts_is_refused() -> None:
    """Shares that are not those of the site would move what is common to it into the answer."""
    run = helper.Consortium("capecontrast").until("zero-sum")
    roster, site = joined(run.state.model), run.parties["local0"]
    verify(site, roster)
    first = replace(roster.sites[0], counts=(2, 1))
    with pytest.raises(PrivacyBudgetError, match="other things of this site"):
        verify(site, replace(roster, sites=(first, *roster.sites[1:])))


def test_a_site_whose_cells_are_others_than_in_join_is_asked_nothing() -> None:
    """All bounds rely on the counts: a policy that hides a level meanwhile changes them."""
    run = helper.Consortium("capecontrast", test="each").until("contrast", 2)
    site = run.parties["local0"]
    site.policy = replace(site.policy, min_group=2)
    with pytest.raises(DataError, match="E161"):
        run.exchange()


def source_of(folder: Path, contents: str | None = None, **changed: Any) -> FileSource:
    listing = {} if contents is None else {"contents": contents}
    return FileSource(folder, listing, config_of(**changed), "A")


@pytest.mark.parametrize(
    ("old", "new"), [("control", "patient"), ("\t50", "\t51"), ("sub-0001", "sub-9001")]
)
def test_groups_are_pinned_from_the_first_round_on(tmp_path: Path, old: str, new: str) -> None:
    """With groups that were changed after half A was asked, other halves would be drawn."""
    (tmp_path / "a").mkdir()
    table = tmp_path / "a" / "participants.tsv"
    rows = "participant_id\tdx\tage\tsex\tvolume\tscore\nsub-0001\tcontrol\t50\tf\t1\t2\n"
    table.write_text(rows + "sub-0002\tpatient\t40\tm\t1\t2\n")
    contents = source_of(tmp_path / "a").contents
    assert source_of(tmp_path / "a", contents).n_subjects == 2
    table.write_text(table.read_text() + "\n")  # no other people
    assert source_of(tmp_path / "a", contents).n_subjects == 2
    table.write_text(table.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match="E161"):
        _ = source_of(tmp_path / "a", contents).n_subjects


def test_without_private_results_nobody_is_read_once_more_for_a_table(monkeypatch) -> None:
    """`report` read everybody for a table that the site's policy did not let it write."""
    run = helper.Consortium("capecontrast").play()
    site, asked = run.parties["local0"], []
    monkeypatch.setattr(
        capecontrast, "people_at", lambda *given: asked.append(1) or people_at(*given)
    )
    own = capecontrast.of_site(site, run.state.model).people
    assert own is not None
    assert not asked
    assert own().header == ("subject", "asked", "dx", "age", "volume", "score")
    assert len(own().rows) == 3
    assert own().rows[0][1] == "yes"
    assert len(asked) == 3


def test_other_columns_or_another_spelling_make_no_new_people(tmp_path: Path) -> None:
    """Images know sub-01 whom a table calls 01: their budget began anew; digests of a row could be
    tried out, and made one person of all who have the same number."""
    header = "participant_id\tdx\tage\tsex\tvolume\tscore"
    sources = []
    for spelling in ("sub-{:02}", "{}", "SUB-{}"):
        folder = tmp_path / spelling[:3]
        folder.mkdir()
        rows = (f"{spelling.format(m)}\tpatient\t50\tf\t12\t7" for m in (1, 2, 3))
        (folder / "participants.tsv").write_text("\n".join([header, *rows]) + "\n")
        sources += [source_of(folder), source_of(folder, outcomes="score -2:2")]
    known = [[{*person.digests(b"k", ("A",)).split()} for person in one.people] for one in sources]
    for people in known:
        for m, one in enumerate(known[0]):
            assert [bool(one & other) for other in people] == [m == i for i in range(3)]


def test_a_table_of_the_site_s_own_name_is_no_second_list(tmp_path: Path) -> None:
    study(tmp_path, (20,))
    (tmp_path / "site0" / "participants.tsv").rename(tmp_path / "site0" / "subjects.tsv")
    (tmp_path / "site0" / "site-policy.toml").write_text('tables = ["subjects.tsv"]\n')
    assert source_of(tmp_path / "site0").n_subjects == 20


def test_a_table_of_outcomes_lists_people_who_are_looked_up_among_groups(tmp_path: Path) -> None:
    people = "participant_id\tdx\tage\tsex\nsub-2\tpatient\t50\tf\nsub-1\tcontrol\t60\tm\n"
    (tmp_path / "participants.tsv").write_text(people)
    (tmp_path / "volumes.csv").write_text("participant_id,score,volume\n1,2,1\n2,4,3\n3,6,5\n")
    tables = 'tables = ["participants.tsv", "volumes.csv"]\n'
    (tmp_path / "site-policy.toml").write_text(tables)
    source = source_of(tmp_path)
    assert source.n_subjects == 3
    rows = {name: row[:3, 0] for name, row in source.reduced(2)}
    # volume and score by their unit of 10, and the cell
    np.testing.assert_allclose(rows["1"], [0.1, 0.2, 0])
    np.testing.assert_allclose(rows["2"], [0.3, 0.4, 1])
    np.testing.assert_allclose(rows["3"], [0.5, 0.6, -1])
    assert "'3': not in participants.tsv" in source.notice
    assert source.notice.startswith("Site A: 2 of 3 people count (1: no level of a public column).")


# -- what a run survives ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> helper.Recording:
    return helper.record(tmp_path_factory.mktemp("contrast"), "capecontrast")


@pytest.mark.parametrize("exchange", [("contrast", 2), ("score", 1)])
def test_a_run_set_back_without_its_working_files_says_what_it_said(recording, tmp_path, exchange):
    """Killed and begun again in any round: rows are read once more, noise is the same."""
    engine = recording.at(exchange, tmp_path / "work")
    for site in engine.sites:
        for file in engine.place(site, "cache").rglob("*.arrays"):
            file.unlink()
    engine.exchange()
    assert engine.answers == recording.answers[exchange]


def test_a_run_set_back_after_groups_were_changed_releases_nothing(recording, tmp_path) -> None:
    """Half A, another half A and a new half B once could go out: three looks at one person."""
    engine = recording.at(("contrast", 1), tmp_path / "work")
    shutil.copytree(engine.data, tmp_path / "data")
    engine.data = tmp_path / "data"
    table = engine.data / "local0" / "participants.tsv"
    table.write_text(table.read_text().replace("\tpatient\t", "\tcontrol\t", 1))
    for file in engine.place("local0", "cache").rglob("*.arrays"):
        file.unlink()
    with pytest.raises(DataError, match="E161"):
        engine.ask("local0")


# -- what a site is told before a run --------------------------------------------------------------


def test_validate_says_what_everybody_would_read(tmp_path: Path, capsys) -> None:
    """The counts of a card, and that a level of few people is not among them; no line a person."""
    data = study(tmp_path / "data", (30,))
    table = data / "site0" / "participants.tsv"
    table.write_text(table.read_text().replace("\tother\t", "\trare\t"))
    given = {**GIVEN, "variables": "dx control/patient/rare, age 18:90, sex m/f"}
    lines = [f"{name} = {json.dumps(value)}" for name, value in given.items()]
    (data / "site0" / "site-policy.toml").write_text('public_counts = ["dx"]\nlacks = ["score"]\n')
    (data / "settings.toml").write_text("\n".join(['computation = "capecontrast"', *lines]))
    main(["validate", str(data / "site0"), "--settings", str(data / "settings.toml")])
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r"everybody would read: 30 people, control 1\d, patient 1\d, rare 0", text)
    assert "no score" in text
    assert "TR any" not in text, "people of tables have no series"
    assert "matrix" not in text
    assert "site site0" in text
    assert "sub-0010" not in text  # of a table T, TR and grid were "-" in everybody's line
    assert "dx rare: 1, min_group = 5" in text
    source = FileSource(data / "site0", {}, CapeContrastConfig.from_input(given), "A", min_group=5)
    assert "dx rare: 1, min_group = 5" in source.notice


def test_a_consortium_that_validate_finds_ready_is_planned_as_in_join(tmp_path: Path) -> None:
    """Cards without counts could not be planned: the check ended with an internal error."""
    data = study(tmp_path / "data", (40, 50, 45))
    lines = [f"{name} = {json.dumps(value)}" for name, value in GIVEN.items()]
    lines += ["n_sites = 3", 'computation = "capecontrast"']
    (data / "settings.toml").write_text("\n".join(lines))
    policy = replace(helper.POLICY, min_group=5)
    found = [one.private for one in validate(data, policy=policy) if one.code == "CAPE-E150"]
    assert not found
    table = data / "site0" / "participants.tsv"
    for site in range(3):
        table = data / f"site{site}" / "participants.tsv"
        table.write_text(table.read_text().replace("\tpatient\t", "\tcontrol\t"))
        table.with_name("site-policy.toml").write_text('as_it_is = ["dx"]\n')
    (found,) = (one.private for one in validate(data, policy=policy) if one.code == "CAPE-E150")
    assert "nobody has dx patient" in found
