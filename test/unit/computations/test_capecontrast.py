"""The computation that compares groups: from tables of sites to estimates."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cape.computations import capecontrast
from cape.computations.capecontrast import (
    CapeContrastConfig,
    comparison_rows,
    groups_of,
    plan_run,
    stages,
    verify,
)
from cape.computations.capecontrast import _one_stack as one_stack
from cape.data.pipeline import inspect_site
from cape.errors import CapeError, ConfigError, DataError, PrivacyBudgetError
from cape.privacy.cost import largest_cost, total_cost, total_of
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import RosterEntry, joined
from cape.site.site_data import FileSource
from support import consortium as helper
from support.simulation import simulate

GIVEN: dict[str, Any] = {
    "epsilon": 8.0, "delta": 1e-5, "group": "dx: patient, control",
    "covariates": "age 18:90, sex f/m", "outcomes": "volume 10, score 10",
    "accept_low_quality": True,
}  # fmt: skip


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
    """Sites whose patients are older and differ by `effect` sd in the first outcome.

    At each site somebody is in neither group, and somebody lacks an outcome.
    """
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
    return folder


def answers(data: Path, out: Path, **changed: Any) -> list[dict[str, str]]:
    chosen = {"computation": "capecontrast", **GIVEN, **changed}
    with helper.without_pages():
        simulate(data, out=out, settings=chosen, seed=3)
    with (out / "consortium" / "effects.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"group": "age 18:90", "covariates": ""}, "two groups with labels = public"),
        ({"group": "dx"}, "a column and its two levels"),
        ({"covariates": "dx a/b"}, "other columns than that of group"),
        ({"outcomes": "volume"}, "columns with the range of most people"),
        ({"outcomes": "volume 0"}, "units from 1e-9"),
        ({"outcomes": "volume 1, Volume 2"}, "name volume once"),
        ({"outcomes": ", ".join(f"v{k} 1" for k in range(501))}, "at most 500"),
        ({"outcomes": "volume 1", "question": "pattern"}, "one outcome has no pattern"),
        ({"outcomes": ", ".join(f"v{k} 1" for k in range(9)), "labels": "protected"}, "1 to 8"),
        ({"sites": "random"}, "these, but for one outcome"),
        ({"outcomes_from": "volumes.tsv"}, "auto, gift"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_asked_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config_of(**changed)


@pytest.mark.parametrize("setting", ["group", "outcomes"])
def test_a_form_that_nobody_filled_is_refused_when_it_is_asked(setting: str) -> None:
    config = config_of(**{setting: " "})
    assert config.comparison is None
    with pytest.raises(ConfigError, match=rf"E013 .*{setting}"):
        stages(replace(config, labels="public")), config.counted


def test_halves_of_a_pattern_share_the_budget() -> None:
    planned = stages(config_of())
    assert [(stage.phase, stage.part) for stage in planned] == [("contrast", "")]
    many = stages(config_of(outcomes=", ".join(f"v{k} 1" for k in range(9))))
    assert [(stage.phase, stage.part) for stage in many] == [("contrast", "A"), ("score", "B")]
    assert config_of(question="pattern").is_pattern(2)


# -- runs ------------------------------------------------------------------------------------------


def test_a_planted_difference_is_found_and_others_are_not(tmp_path: Path) -> None:
    found = answers(study(tmp_path / "data", effect=1.0), tmp_path / "out")
    assert [row["outcome"] for row in found] == ["volume", "score"]
    volume, score = found
    assert 6 < float(volume["estimate"]) < 14
    assert float(volume["low95"]) > 0
    assert float(volume["p_holm"]) < 0.01
    assert abs(float(score["estimate"])) < 2.5 * float(score["se"])
    results = json.loads((tmp_path / "out" / "consortium" / "results.json").read_text())
    assert results["epsilon_planned"] == pytest.approx(8.0)


def test_a_pattern_is_found_in_one_half_and_tested_in_the_other(tmp_path: Path) -> None:
    data = study(tmp_path / "data", effect=1.5, K=10)
    many = ", ".join(["volume 10", "score 10", *(f"v{k} 10" for k in range(2, 10))])
    rows = answers(data, tmp_path / "out", outcomes=many, epsilon=20.0)
    (pattern,) = (row for row in rows if row["outcome"] == "pattern")
    assert float(pattern["p"]) < 0.01
    lines = json.loads((tmp_path / "out/site0/private/ledger.json").read_text())
    assert '"part": "A"' in json.dumps(lines)
    assert '"part": "B"' in json.dumps(lines)


def test_groups_that_are_data_are_compared_without_counts(tmp_path: Path) -> None:
    data = study(tmp_path / "data", effect=1.0)
    found, _ = answers(data, tmp_path / "out", labels="protected", epsilon=20.0)
    assert 6 < float(found["estimate"]) < 14
    assert (
        "patient" not in (tmp_path / "out/consortium/settings.json").read_text().split("group")[0]
    )


def test_a_continuous_question_has_a_difference_between_the_ends_of_its_range(tmp_path) -> None:
    """The outcome rises by .2 of its unit a year: 14.4 over the range of 72 years."""
    found, _ = answers(
        study(tmp_path / "data"), tmp_path / "out", labels="protected", epsilon=100.0,
        group="age 18:90", covariates="sex f/m",
    )  # fmt: skip
    assert abs(float(found["estimate"]) - 14.4) < 3 * float(found["se"])
    assert float(found["p"]) < 0.1


def test_an_answer_for_sites_like_these_asks_for_their_spread(tmp_path: Path) -> None:
    data = study(tmp_path / "data", (40,) * 8, effect=1.0)
    found = answers(data, tmp_path / "out", outcomes="volume 10", sites="random", epsilon=20.0)
    assert float(found[0]["se_sites"]) >= 0
    few = study(tmp_path / "few", (40,) * 3)
    with pytest.raises(ConfigError, match="8 and more"):
        answers(few, tmp_path / "o", outcomes="volume 10", sites="random")


def test_of_a_pattern_for_sites_like_these_halves_are_of_sites(tmp_path: Path) -> None:
    """A pattern that is tested where it was found would point at the effects of these sites."""
    data = study(tmp_path / "data", (40,) * 8, effect=1.5)
    many = {"outcomes": "volume 10, score 10", "question": "pattern", "sites": "random"}
    rows = answers(data, tmp_path / "out", epsilon=50.0, **many)
    assert [row["outcome"] for row in rows if row["outcome"] == "pattern"]
    entries = tuple(
        RosterEntry(site=f"site{s}", nonce="", n_subjects=40, counts=(20, 19)) for s in range(8)
    )
    roster = replace(joined(helper.Consortium("capecontrast").play().state.model), sites=entries)
    halves = [groups_of(config_of(**many), "seed", roster, part) for part in ("A", "B")]
    assert [len(half.people) for half in halves] == [4, 4]
    assert [half.n for half in halves] == [156, 156]


def test_a_site_of_one_group_adds_nothing_and_is_told(tmp_path: Path) -> None:
    data = study(tmp_path / "data", effect=1.0, one_group=1)
    found = answers(data, tmp_path / "out")
    assert 5 < float(found[0]["estimate"]) < 15
    text = (tmp_path / "out" / "consortium" / "results.json").read_text()
    assert "People of one group only, who add nothing to it: site1." in text


def test_too_few_people_are_refused_before_anything_is_spent(tmp_path: Path) -> None:
    data = study(tmp_path / "data")
    with pytest.raises(ConfigError, match=r"would be seen, 0\.8 at most"):
        answers(data, tmp_path / "out", epsilon=0.3, accept_low_quality=False)
    answers(data, tmp_path / "again", epsilon=0.3)
    text = (tmp_path / "again" / "consortium" / "results.json").read_text()
    assert "Too few people: only a difference" in text


def test_a_comparison_lets_no_site_drop_out() -> None:
    """Weights and halves are of all sites: the answer of fewer would be silently another one."""
    space = FeatureSpace(kind="matrix", shape=(), affine=(), packed="", n_features=2, digest="")
    config = config_of(aggregation="secagg", n_sites=7)
    with pytest.raises(ConfigError, match="min_survivors=7"):
        plan_run(config, 7, 700, space)
    assert plan_run(config_of(aggregation="secagg", min_survivors=7), 7, 700, space).releases


def test_sites_without_two_groups_have_nothing_to_compare(tmp_path: Path) -> None:
    data = study(tmp_path / "data", (20,), one_group=0)
    with pytest.raises(ConfigError, match="no site has 1 or more people of both groups"):
        answers(data, tmp_path / "out", min_sites=1, noise="local")


def test_without_noise_nobody_is_protected(tmp_path: Path) -> None:
    data = study(tmp_path / "data", effect=1.0)
    found, _ = answers(data, tmp_path / "out", private=False)
    assert float(found["se_privacy"]) == 0.0
    assert 7 < float(found["estimate"]) < 13


# -- privacy ---------------------------------------------------------------------------------------


def test_a_ledger_of_two_halves_bears_the_dearer_one() -> None:
    run = helper.Consortium("capecontrast").play()
    ledger = run.state.ledger
    assert ledger is not None
    halves = [[e.cost for e in ledger.events if e.part == part] for part in ("A", "B")]
    assert all(halves)
    assert ledger.spent == total_of(ledger.events) == largest_cost(map(total_cost, halves))


def test_everybody_is_in_one_half_and_the_public_sizes_say_how_many() -> None:
    run = helper.Consortium("capecontrast").play()
    roster, seed = joined(run.state.model), run.state.model.fingerprint
    sizes = [groups_of(run.config, seed, roster, part) for part in ("A", "B")]
    assert [entry.counts for entry in roster.sites] == [(2, 1), (2, 2), (2, 1)]
    assert sizes[0].n + sizes[1].n == 10
    assert (sizes[0].cases + sizes[1].cases).tolist() == [2, 2, 2]


def test_a_site_whose_policy_says_nothing_of_the_column_takes_no_part() -> None:
    policy = replace(helper.POLICY, public_counts=())
    with pytest.raises(PrivacyBudgetError, match="E168"):
        helper.Consortium("capecontrast", policy=policy).exchange()
    strict = helper.Consortium(
        "capecontrast", policy=policy, labels="protected", question="planned"
    ).until("zero-sum")  # fmt: skip
    assert all(entry.counts == () for entry in joined(strict.state.model).sites)


def test_an_aggregator_that_changes_counts_is_refused() -> None:
    """Shares that are not those of the site would move what is common to it into the answer."""
    run = helper.Consortium("capecontrast").until("zero-sum")
    roster, site = joined(run.state.model), run.parties["local0"]
    verify(site, roster)
    first = replace(roster.sites[0], counts=(1, 2))
    with pytest.raises(PrivacyBudgetError, match="other counts of this site"):
        verify(site, replace(roster, sites=(first, *roster.sites[1:])))


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


def test_the_site_is_told_before_a_run_who_is_in_neither_group(tmp_path: Path) -> None:
    data = study(tmp_path / "data", (20,))
    found = inspect_site(data / "site0", {}, config_of(), site="A")
    text = "\n".join(one.private for one in found.findings)
    assert "'sub-0003': dx 'other'" in text
    (data / "site0" / "participants.tsv").write_text("participant_id\tvolume\tscore\n1\t2\t3\n")
    found = inspect_site(data / "site0", {}, config_of(), site="A")
    assert "dx: participants.tsv" in str(found.error.detail if found.error else "")


def test_without_private_results_nobody_is_read_once_more_for_a_table(monkeypatch) -> None:
    """`report` read everybody for a table that the site's policy did not let it write."""
    run = helper.Consortium("capecontrast").play()
    site, asked = run.parties["local0"], []
    read = capecontrast.comparison_rows
    monkeypatch.setattr(
        capecontrast, "comparison_rows", lambda *given: asked.append(1) or read(*given)
    )
    own = capecontrast.of_site(site, run.state.model).people
    assert own is not None
    assert not asked
    assert own().header[:2] == ("subject", run.config.asked_group.column)
    assert len(own().rows) == 3
    assert asked == [1, 1]


def test_who_lacks_an_outcome_or_a_group_stays_in_the_stack(tmp_path: Path) -> None:
    data = study(tmp_path / "data", (20,))
    run = helper.Consortium(
        "capecontrast", {"site0": []}, folder=data, **{**GIVEN, "min_sites": 1, "noise": "local"}
    )
    party = run.parties["site0"]
    people = comparison_rows(party, party.source.space)
    assert [array.shape for array in people.arrays] == [(20, 5, 1)]
    rows = people.arrays[0][:, :, 0]
    assert np.isnan(rows[5, 0])
    assert np.isfinite(rows[5, 2:]).all()
    assert np.isnan(rows[3, -1])
    assert len(people.labels[0]) == 20


@pytest.mark.parametrize(
    "text",
    [
        "", "participant_id\n", "canary\tzq7\n31337\t1\n", "participant_id\tdx\tage\tsex\tvolume\n",
        "participant_id,dx,age,sex,volume,score\nsub-1,patient,3,f,1,1\n",
        "participant_id\tdx\tage\tsex\tvolume\tscore\tdx\nsub-1\tpatient\t3\tf\t1\t1\tx\n",
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used_stops_its_site_and_tells_nobody_of_it(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "participants.tsv").write_text(text)
    with pytest.raises(CapeError) as caught:
        _ = source_of(tmp_path / "a").n_subjects
    for secret in ("canary", "31337", "sub-1", ".tsv"):
        assert secret not in str(caught.value)


ROW_OF_ONE = (
    b"sub-0007\tpatient\t50\tf\t1\t2\tone more", b"sub-0007\tpatient\t50", b"sub-0007",
    b"sub-0007\tpatient\t50\tf\t1\tM\xfcller", b"sub-0007\tpatient\t50\tf\t1\t\x00",
    b"sub-0007\tpatient\t50\tf\t1\t" + b"y" * 200_000, b'"sub-0007\tpatient\t50\tf\t1\t2',
    b"sub-0007\tpatient\told\tf\t1e300\tinf",
)  # fmt: skip


@pytest.mark.parametrize("mark", ["", "\texclude"])
@pytest.mark.parametrize("row", ROW_OF_ONE)
def test_no_row_of_one_person_decides_whether_a_site_takes_part(
    tmp_path: Path, row: bytes, mark: str
) -> None:
    """participants.tsv is read as a list of exclusions, too: there any broken row ended the run."""
    table = study(tmp_path, (20,)) / "site0" / "participants.tsv"
    lines = table.read_bytes().splitlines()
    lines[8] = row
    end = mark.encode().replace(b"exclude", b"0")
    lines = [lines[0] + mark.encode(), *(line + end for line in lines[1:])]
    table.write_bytes(b"\n".join(lines))
    source = source_of(tmp_path / "site0")
    assert source.n_subjects == 20
    assert source.compared().arrays[0].shape == (20, 3, 1)
    assert sum(Y.shape[1] for _, Y in source.reduced(2)) == 18  # without who lacks a value, too


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
        sources += [source_of(folder), source_of(folder, outcomes="score 1")]
    known = [[{*person.digests(b"k", "A").split()} for person in one.people] for one in sources]
    for people in known:
        for m, one in enumerate(known[0]):
            assert [bool(one & other) for other in people] == [m == i for i in range(3)]


def test_a_value_past_all_numbers_is_nobody_and_says_nothing() -> None:
    """The score of somebody whose outcomes are huge wrote a warning into the engine's log."""
    assert one_stack(np.array([[1.0], [1e300]]), ("a", "b")).arrays[0][:, 0, 0].tolist() == [
        1.0, np.inf
    ]  # fmt: skip


def test_a_table_of_the_site_s_own_name_is_no_second_list(tmp_path: Path) -> None:
    study(tmp_path, (20,))
    (tmp_path / "site0" / "participants.tsv").rename(tmp_path / "site0" / "subjects.tsv")
    (tmp_path / "site0" / "site-policy.toml").write_text('tables = ["subjects.tsv"]\n')
    assert source_of(tmp_path / "site0").n_subjects == 20


@pytest.mark.parametrize("setting", ["people_table", "outcomes_table"])
def test_an_owner_names_no_file_of_a_site(setting: str) -> None:
    """`outcomes_table = "withdrawn.tsv"` ran on exactly those who had withdrawn."""
    with pytest.raises(ConfigError, match="E010"):
        config_of(**{setting: "withdrawn.tsv"})


VOLUMES = "participant_id,score,volume{0}\n1,2,1{1}\n2,4,3{2}\n3,6,5{1}\n"


def volumes_and_people(folder: Path, *marks: str) -> FileSource:
    (folder / "participants.tsv").write_text(
        "participant_id\tdx\tage\tsex\nsub-2\tpatient\t50\tf\nsub-1\tcontrol\t60\tm\n"
    )
    (folder / "volumes.csv").write_text(VOLUMES.format(*(marks or ("", "", ""))))
    tables = ["participants.tsv", "volumes.csv"]
    (folder / "site-policy.toml").write_text(f"tables = {json.dumps(tables)}\n")
    return source_of(folder)


def test_a_table_of_outcomes_lists_people_who_are_looked_up_among_groups(tmp_path: Path) -> None:
    source = volumes_and_people(tmp_path)
    assert source.n_subjects == 3
    assert [u[:, 0].tolist() for _, u in source.reduced(2)] == [[1, 2], [3, 4], [5, 6]]
    groups = source.compared().arrays[0][:, -1, 0]
    np.testing.assert_array_equal(groups, [0, 1, np.nan])
    assert "'3': not in participants.tsv" in source.notice


def test_exclude_in_a_table_of_volumes_leaves_out(tmp_path: Path) -> None:
    source = volumes_and_people(tmp_path, ",exclude", ",0", ",1")
    assert [label for label, _ in source.reduced(2)] == ["1", "3"]
    found = inspect_site(tmp_path, {}, config_of(), site="A")
    assert "1 of 3 people is left out: volumes.csv, line 3" in found.left_out


def test_exclude_in_the_table_of_groups_leaves_out(tmp_path: Path) -> None:
    volumes_and_people(tmp_path)
    table = tmp_path / "participants.tsv"
    table.write_text(
        table.read_text().replace("sex\n", "sex\texclude\n").replace("f\n", "f\t1\n")
        .replace("m\n", "m\t\n")
    )  # fmt: skip
    assert [label for label, _ in source_of(tmp_path).reduced(2)] == ["1", "3"]


# -- what a run survives ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> helper.Recording:
    return helper.record(tmp_path_factory.mktemp("contrast"), "capecontrast")


@pytest.mark.parametrize("exchange", [("contrast", 2), ("score", 1)])
def test_a_run_set_back_without_its_working_files_says_what_it_said(
    recording: helper.Recording, tmp_path: Path, exchange: tuple[str, int]
) -> None:
    """Killed and begun again in any round: rows are read once more, noise is the same."""
    engine = recording.at(exchange, tmp_path / "work")
    for site in engine.sites:
        for file in engine.place(site, "cache").rglob("*.arrays"):
            file.unlink()
    engine.exchange()
    assert engine.answers == recording.answers[exchange]


def test_a_run_set_back_after_groups_were_changed_releases_nothing(
    recording: helper.Recording, tmp_path: Path
) -> None:
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
