"""The site's own file: it can only tighten what the owner of a run asks for."""

import dataclasses
import math
import re
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cape.errors import ConfigError, DataError, PrivacyBudgetError
from cape.privacy.accounting import gdp_mu
from cape.privacy.cost import FREE
from cape.settings.config import Config
from cape.settings.documents import not_default, toml_text, toml_value
from cape.settings.own_words import as_tables
from cape.site import policy
from cape.site.policy import NO_LEDGER, SitePolicy, limit_of

CONFIG = Config(epsilon=4.0, delta=1e-5, n_sites=4)


def test_a_site_that_says_nothing_has_the_shipped_policy() -> None:
    policy = SitePolicy.from_mapping({})
    assert policy == SitePolicy()
    assert (policy.min_subjects, policy.allow_not_private, policy.simulation_seed) == (3, False, -1)
    assert policy.ledger_file != NO_LEDGER
    policy.check_settings("B", "capedjica", replace(CONFIG, epsilon=8.0, n_sites=20))
    policy.check_run("B", colluders=1, n_basis=5000, n_subjects=3, n_sites=20)
    policy.check_run("B", colluders=0, n_basis=5000, n_subjects=3, n_sites=1)  # nobody colludes


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"epsilon": 8.01}, "max_run=8 at delta 1e-5 there, got 8.01 at delta 1e-5"),
        ({"epsilon": 1000.0}, "max_run=8 at delta 1e-5 there, got 1000 at delta 1e-5"),
        ({"epsilon": 8.0, "delta": 1e-3}, "max_run=8 at delta 1e-5 there, got 8 at delta 0.001"),
        ({"delta": 0.01}, "max_delta=0.001 there, got 0.01"),
        ({"assumed_colluders": 0, "n_sites": 2, "min_sites": 2}, "min_assumed_colluders=1 there"),
        ({"assumed_colluders": 0, "n_sites": 3}, "min_assumed_colluders=1 there, got 0"),
        ({"noise": "local"}, "allow_local_noise=False there, got noise=local"),
        ({"key_trust": "aggregator"}, "allow_relayed_keys=False there, got key_trust=aggregator"),
        ({"private": False}, "allow_not_private=False there, got a run without noise"),
        ({"n_sites": 21}, "max_sites=20 there, got 21"),
    ],
)
def test_a_plan_above_the_shipped_policy_is_refused_by_the_name_of_its_line(config, line) -> None:
    """The limits of the software are public, and a line in the site's own file raises each."""
    asked = replace(CONFIG, **{"n_sites": 4, **config})
    with pytest.raises(PrivacyBudgetError) as caught:
        SitePolicy().check_settings("B", "capedjica", asked)
    assert caught.value.code == "CAPE-E260"
    assert line in caught.value.public
    assert "only people at the site can change its policy" in caught.value.public
    name = line.partition("=")[0]
    raised = name.startswith("allow_") or ([] if name == "max_run" else 0)
    loose = {"max_run": [], name: raised}  # of a delta that is raised the run costs more, too
    SitePolicy.from_mapping(loose).check_settings("B", "capedjica", asked)
    SitePolicy.of_simulation().check_settings("B", "capedjica", asked)


def test_the_total_of_all_runs_has_a_limit_without_a_file_that_says_so() -> None:
    assert SitePolicy().max_total == ((10.0, 1e-5),)
    told = SitePolicy().over_total(
        "B", asked=limit_of([(4.0, 1e-5)]), left=limit_of([(0.25, 1e-5)])
    )
    assert (told.code, "0.25" in str(told)) == ("CAPE-E260", False)
    assert "this run asks epsilon 4 at delta 1e-05, left 0.25" in told.detail.replace(".000", "")
    # Its own number is its own business.
    own = SitePolicy(max_total=((3.0, 1e-5),))
    assert own.over_total("B", asked=limit_of([(4.0, 1e-5)]), left=FREE).code == "CAPE-E154"
    without = SitePolicy.from_mapping({"ledger_file": "none"})
    assert (without.ledger_file, without.max_total) == (NO_LEDGER, ())


def test_the_page_states_every_key_with_its_shipped_value() -> None:
    page = (Path(__file__).parents[3] / "docs" / "ledger.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| ([^|]+) \|", page, re.MULTILINE)
    stated = {name: cell.strip().strip("`") for names, cell in rows
              for name in re.findall(r"`([a-z_]+)`", names)}  # fmt: skip
    shipped = dataclasses.asdict(SitePolicy())
    assert stated == {n: toml_value(as_tables(n, value)) for n, value in shipped.items()}


def test_every_setting_is_read_from_a_file() -> None:
    given = {
        "min_subjects": 5, "max_run": [[2, 1e-5]], "max_delta": 1e-6, "min_assumed_colluders": 1,
        "max_features": 100, "allow_computations": ["capedjica"], "allow_not_private": True,
        "simulation_seed": 0, "private_results": True, "veto": True, "max_sites": 9,
        "dataset_id": "cohort-1", "ledger_file": "ledger.jsonl", "max_total": [[4, 1e-5]],
        "stop_for_data": True, "stop_if_most_fail": False, "max_refusals": 1, "hold_days": 3,
        "total_steps": 8,
        "share_policy_numbers": True, "allowed_owners": ["ann"], "image_digests": ["sha256:0f"],
        "allow_local_noise": True, "allow_relayed_keys": True, "allow_new_sites": False,
        "layout": "{subject}/rest.nii", "not_exclusions": ["qc", "use"],
        "tables": ["volumes.tsv"], "same_people": [["1", "01"]], "different_people": [["a", "A"]],
        "lacks": ["amygdala"], "min_group": 8, "as_it_is": ["sex"],
        "decimal_commas": ["age"],
        "variables": {"icv": {"column": "eTIV", "times": 0.001}, "age": {"column": "Alter"}},
        "levels": {"dx": {"SZ": "schizophrenia", "control": 0}},
        "public_counts": ["dx"], "public_maps": ["0a1b"],
    }  # fmt: skip
    policy = SitePolicy.from_mapping(given)
    assert set(given) == {field.name for field in dataclasses.fields(policy)}
    assert policy.variables == (("icv", "eTIV", 0.001), ("age", "Alter", 1.0))
    assert policy.levels == (("dx", "SZ", "schizophrenia"), ("dx", "control", "0"))
    text = toml_text({n: as_tables(n, value) for n, value in not_default(policy).items()})
    assert SitePolicy.from_mapping(tomllib.loads(text)) == policy
    words = policy.words
    assert (words.column("ICV "), words.times("icv"), words.column("sex")) == ("eTIV", 0.001, "sex")
    assert words.level_words("DX") == {"SZ": "schizophrenia", "control": "0"}
    assert words.takes_as_it_is("Sex")
    for name in ("variables", "levels"):
        del given[name]
    for name, value in given.items():
        found = getattr(policy, name)
        listed = value if isinstance(value, list) else []
        pairs = [tuple(one) if isinstance(one, list) else one for one in listed]
        assert found == (tuple(pairs) if isinstance(value, list) else value)
        assert type(found) is type(getattr(SitePolicy(), name))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"veeto": True}, "E010 unknown setting 'site policy: veeto'; did you mean 'veto'"),
        ({"qqq": True}, r"E010 unknown setting 'site policy: qqq'"),
        ({"veto": 1}, "veto=1: allowed true or false"),
        ({"veto": "true"}, "allowed true or false"),
        ({"min_subjects": "5"}, "allowed a whole number, 0 or more"),
        ({"min_subjects": True}, "allowed a whole number"),
        ({"min_subjects": 2.5}, "allowed a whole number"),
        ({"min_subjects": -1}, "allowed a whole number, 0 or more"),
        ({"max_delta": -1}, "allowed a number, 0 or more"),
        ({"max_delta": 2}, "0 or more, below 1; see site-policy.toml in docs/ledger.md"),
        ({"simulation_seed": -2}, "allowed a whole number, -1 or more"),
        ({"max_delta": True}, "allowed a number"),
        ({"max_delta": [1]}, "allowed a number"),
        ({"allow_computations": "capedjica"}, "allowed a list of texts"),
        ({"allow_computations": [1]}, "allowed a list of texts"),
        ({"dataset_id": 1}, "allowed a text"),
        ({"public_counts": "dx"}, "allowed a list of texts"),
        ({"variables": ["icv"]}, r"variables is a table, such as \[variables.icv\]"),
        ({"variables": {"icv": {"times": 0}}}, "times = a number that is not 0"),
        ({"variables": {"icv": {"times": True}}}, "times = a number that is not 0"),
        ({"variables": {"icv": {"colum": "eTIV"}}}, "variables.icv has column"),
        ({"variables": {"icv": {"column": ""}}}, "variables.icv has column"),
        ({"levels": {"dx": "SZ"}}, "dx is a table"),
        ({"levels": {"dx": {"SZ": [1]}}}, "levels.dx.SZ is the text of the cells"),
        ({"as_it_is": "dx"}, "as_it_is is a list"),
        ({"allowed_owners": "ann"}, "allowed a list of texts"),
        (
            {"max_total": [[2, 1e-5]], "ledger_file": "none"},
            "max_total needs to know .*; name a ledger_file",
        ),
        ({"max_run": 8}, r"max_run=8: allowed a list of pairs \[epsilon, delta\]"),
        ({"max_run": [8, 1e-5]}, "allowed a list of pairs"),
        ({"max_run": [[8]]}, "allowed a list of pairs"),
        ({"max_run": [[8, 2]]}, "allowed a list of pairs"),
        ({"max_total": [["8", "1e-5"]]}, "allowed a list of pairs"),
        ({"max_total": [[10**400, 1e-5]]}, "allowed a list of pairs"),
        ({"max_total": [[float("nan"), 1e-5]]}, "allowed a list of pairs"),
        ({"max_total": [[True, 1e-5]]}, "allowed a list of pairs"),
        # A limit of nan would never refuse; a number of 400 digits left as an OverflowError
        *(
            ({name: number}, "E011")
            for name in ("max_delta", "min_subjects")
            for number in (math.inf, -math.inf, math.nan, 10**400)
        ),
    ],
)
def test_a_mistake_in_the_file_stops_the_site(given, text) -> None:
    with pytest.raises(ConfigError, match=text):
        SitePolicy.from_mapping(given)


def test_a_whole_number_may_be_written_as_a_float() -> None:
    assert SitePolicy.from_mapping({"min_subjects": 5.0}).min_subjects == 5
    assert type(SitePolicy.from_mapping({"max_delta": 0}).max_delta) is float


@pytest.mark.parametrize(
    ("given", "pairs"),
    [
        ({}, ((8.0, 1e-5),)),
        ({"max_run": [[2, 1e-5]]}, ((2.0, 1e-5),)),
        ({"max_run": []}, ()),
        ({"max_run": [[2, 1e-6], [1, 1e-4], [3, 1e-5]]},
         ((1.0, 1e-4), (2.0, 1e-6), (3.0, 1e-5))),
    ],
)  # fmt: skip
def test_limits_are_pairs_of_which_all_hold(given, pairs) -> None:
    policy = SitePolicy.from_mapping(given)
    assert policy.max_run == pairs
    tightest = min((gdp_mu(epsilon=e, delta=d) for e, d in pairs), default=None)
    assert limit_of(policy.max_run).mu() == tightest


def test_a_generous_delta_buys_no_larger_run() -> None:
    """An epsilon of 8 with max_delta 1e-3 admitted mu 2.08, the total mu 2.46: right in 89 %."""
    policy = SitePolicy()
    policy.check_settings("B", "capedjica", replace(CONFIG, epsilon=8.0, delta=1e-6))
    with pytest.raises(PrivacyBudgetError, match="max_run"):
        policy.check_settings("B", "capedjica", replace(CONFIG, epsilon=8.0, delta=1e-4))
    assert gdp_mu(epsilon=5.9, delta=1e-3) < gdp_mu(epsilon=8.0, delta=1e-5)
    policy.check_settings("B", "capedjica", replace(CONFIG, epsilon=5.9, delta=1e-3))


@pytest.mark.parametrize(
    ("policy", "config", "refused"),
    [
        ({"veto": True}, {}, True),
        ({"allow_computations": ("capecca",)}, {}, True),
        ({"allow_computations": ("capecca", "capedjica")}, {}, False),
        ({}, {"private": False}, True),
        ({"allow_not_private": True}, {"private": False}, False),
        ({"max_run": ((4.0, 1e-5),)}, {}, False),
        ({"max_run": ((3.999, 1e-5),)}, {}, True),
        ({"max_delta": 1e-5}, {}, False),
        ({"max_delta": 0.99e-5}, {}, True),
        ({"min_assumed_colluders": 2}, {}, False),  # S_C by default: known with the roster
        ({"min_assumed_colluders": 2}, {"assumed_colluders": 1}, True),
        ({"min_assumed_colluders": 2}, {"assumed_colluders": 2}, False),
        ({"min_assumed_colluders": 1}, {"assumed_colluders": 0}, True),
    ],
)
def test_settings_that_a_site_does_not_allow_are_refused_by_name(policy, config, refused) -> None:
    own = SitePolicy(**policy)
    if not refused:
        own.check_settings("B", "capedjica", replace(CONFIG, **config))
        return
    shipped = not policy or policy == {"min_assumed_colluders": 1}
    code = "E260" if shipped else "E154"
    with pytest.raises(PrivacyBudgetError, match=f"CAPE-{code} Site policy of site B refuses"):
        own.check_settings("B", "capedjica", replace(CONFIG, **config))


@pytest.mark.parametrize(
    ("policy", "run", "code"),
    [
        ({"min_assumed_colluders": 2}, {"colluders": 1}, "E154"),
        ({"min_assumed_colluders": 2}, {"colluders": 2}, ""),
        ({"max_features": 99}, {"n_basis": 100}, "E154"),
        ({"max_features": 100}, {"n_basis": 100}, ""),
        ({"max_features": 0}, {"n_basis": 10**6}, ""),
        ({"min_subjects": 4}, {"n_subjects": 3}, "E153"),
        ({"min_subjects": 3}, {"n_subjects": 3}, ""),
        ({}, {"n_sites": 21}, "E260"),
        ({}, {"colluders": 0, "n_sites": 2}, "E260"),
        ({"max_sites": 4}, {"n_sites": 5}, "E154"),
        ({"max_sites": 4}, {"n_sites": 4}, ""),
        ({"max_sites": 0}, {"n_sites": 5000}, ""),
    ],
)
def test_a_roster_that_a_site_does_not_allow_is_refused(policy, run, code) -> None:
    facts = {"colluders": 1, "n_basis": 100, "n_subjects": 9, "n_sites": 4, **run}
    if not code:
        SitePolicy(**policy).check_run("B", **facts)
        return
    with pytest.raises((PrivacyBudgetError, DataError)) as caught:
        SitePolicy(**policy).check_run("B", **facts)
    assert caught.value.code == f"CAPE-{code}"
    assert "ite B" in caught.value.public
    assert str(facts["n_subjects"]) not in caught.value.public.replace("E153", "")


def test_a_policy_that_is_read_again_may_only_forbid_more() -> None:
    # Received files land beside mapped ones, so a later reading is not to be trusted.
    accepted = SitePolicy(max_run=((2.0, 1e-5),), allow_computations=("capemean", "capedjica"))
    later = SitePolicy(
        max_run=((50.0, 1e-5),),
        min_subjects=1,
        allow_not_private=True,
        private_results=True,
        allow_computations=("capemean",),
    )
    now = accepted.tightened("A", later)
    assert (limit_of(now.max_run), now.min_subjects) == (limit_of([(2.0, 1e-5)]), 3)
    assert (now.allow_not_private, now.private_results) == (False, False)
    assert now.allow_computations == ("capemean",)
    assert accepted.tightened("A", SitePolicy(allow_computations=("other",))).veto
    assert accepted.tightened("A", SitePolicy(veto=True)).veto
    assert SitePolicy(veto=True).tightened("A", accepted).veto


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (SitePolicy(veto=True), "veto = true"),
        (SitePolicy(allowed_owners=("me",)), 'allowed_owners = ["me"]'),
    ],
)
def test_a_refusal_says_a_key_as_the_file_does(policy: SitePolicy, said: str) -> None:
    """It printed Python: True, and ('me',)."""
    site = partial(policy.check_settings, "A", "capemean", CONFIG)
    if policy.allowed_owners:
        site = partial(policy.check_origin, "A", owner="ben", digests=())
    with pytest.raises(PrivacyBudgetError) as refused:
        site()
    assert said in refused.value.detail


class Comparison(Config):
    """Settings of a run whose sites say how many patients and controls they have."""

    counted = ("dx",)


def test_counts_of_a_column_leave_only_where_the_site_names_it() -> None:
    """Without the rule an owner reads the counts of any column of any table for nothing."""
    config = Comparison(epsilon=1.0, delta=1e-5)
    for silent in (SitePolicy(), SitePolicy(public_counts=("sex", "dxx"))):
        with pytest.raises(PrivacyBudgetError, match=r'E168 .*counts = \["dx"\]') as caught:
            silent.check_settings("B", "capedjica", config)
        assert "sex" not in caught.value.public
        silent.check_settings("B", "capedjica", CONFIG)  # who counts nothing needs no line
    SitePolicy(public_counts=("sex", " DX")).check_settings("B", "capedjica", config)
    SitePolicy.of_simulation().check_settings("B", "capedjica", config)


@pytest.mark.parametrize(
    ("own", "later", "held"),
    [
        (("dx", "sex"), ("dx", "site"), ("dx",)),
        (("dx",), (), ()),
        ((), ("dx",), ()),  # no file that was sent lets a count out
        (("*",), ("dx",), ("dx",)),
        (("dx",), ("*",), ("dx",)),
    ],
)
def test_a_later_reading_lets_no_more_counts_out(own, later, held) -> None:
    now = SitePolicy(public_counts=own).tightened("A", SitePolicy(public_counts=later))
    assert now.public_counts == held
    assert not now.veto


@pytest.mark.parametrize(
    ("own", "later"),
    [
        # With a swapped policy file all noise was predictable and the results said private
        ({}, {"simulation_seed": 7}),
        *(({name: "one"}, {name: "two"}) for name in ("dataset_id", "ledger_file")),
    ],
)
def test_neither_seed_nor_ledger_changes_during_a_run(own, later) -> None:
    with pytest.raises(PrivacyBudgetError, match="E154"):
        SitePolicy(**own).tightened("A", SitePolicy(**later))


def test_every_limit_that_is_read_again_can_only_shrink() -> None:
    two_and_four = ((2.0, 1e-5), (4.0, 1e-9))
    one = SitePolicy(max_sites=9, max_total=two_and_four, allowed_owners=("ann",), max_delta=1e-5)
    two = SitePolicy(max_sites=4, max_total=((3.0, 1e-5),), allowed_owners=("ann", "bob"))
    now = one.tightened("A", replace(two, hold_days=1))
    assert (now.max_sites, now.max_delta, now.hold_days) == (4, 1e-5, one.hold_days)
    assert now.max_total == (min(two_and_four, key=lambda p: gdp_mu(epsilon=p[0], delta=p[1])),)
    assert now.allowed_owners == ("ann",)
    assert one.tightened("A", SitePolicy(allowed_owners=("bob",))).veto


MAPPED_TWICE = [
    # the site's own, the mapped one, what holds
    ({"veto": True}, {"veto": False}, {"veto": True}),
    ({"max_run": ((1.0, 1e-5),)}, {}, {"max_run": ((1.0, 1e-5),)}),
    ({"max_run": ((1.0, 1e-5),)}, {"max_run": [[9.0, 1e-5]]},
     {"max_run": ((1.0, 1e-5),)}),
    ({"max_run": ((1.0, 1e-5),)}, {"max_run": []}, {"max_run": ((1.0, 1e-5),)}),
    ({"min_subjects": 1}, {}, {"min_subjects": 1}),  # what it does not name, it does not change
    ({"min_subjects": 9}, {"min_subjects": 2}, {"min_subjects": 9}),
    ({"allow_not_private": True}, {}, {"allow_not_private": True}),
    ({}, {"allow_not_private": True}, {"allow_not_private": False}),
    ({"allow_computations": ("capecca",)}, {},
     {"allow_computations": ("capecca",), "veto": False}),
    ({"allow_computations": ("capecca",)}, {"allow_computations": ["capemean"]}, {"veto": True}),
    ({"simulation_seed": 7}, {"veto": False}, {"simulation_seed": 7}),
    ({"ledger_file": "l"}, {"max_total": [[2.0, 1e-5]], "ledger_file": ""},
     {"max_total": ((2.0, 1e-5),), "ledger_file": "l"}),
    ({"dataset_id": "d"}, {"dataset_id": "d", "max_sites": 4}, {"dataset_id": "d"}),
    # A file that was sent makes no run lose its place earlier
    *(({"hold_days": days}, {"hold_days": 1}, {"hold_days": days}) for days in (0, 7)),
    ({"not_exclusions": ("qc",)}, {"veto": False}, {"not_exclusions": ("qc",)}),
]  # fmt: skip


@pytest.mark.parametrize(("own", "mapped", "held"), MAPPED_TWICE)
def test_a_mapped_policy_only_tightens_the_one_of_the_environment(own, mapped, held) -> None:
    now = SitePolicy(**own).with_mapped("B", mapped)
    assert {name: getattr(now, name) for name in held} == held


@pytest.mark.parametrize(
    ("own", "mapped"),
    [
        # Who plants a file must not say whose files are whose, nor which column leaves nobody out.
        ({}, {"not_exclusions": ["qc"]}),
        ({}, {"layout": "{subject}.nii"}),
        ({"tables": ("a.tsv",)}, {"tables": ["volumes.tsv"]}),
        ({}, {"simulation_seed": 7}),  # noise that who planted the file can predict
        ({"simulation_seed": 7}, {"simulation_seed": 8}),
        ({"ledger_file": "a"}, {"ledger_file": "b"}),
        ({}, {"ledger_file": "/etc/somewhere"}),
        ({"dataset_id": "a"}, {"dataset_id": "b"}),
    ],
)
def test_a_mapped_policy_names_no_other_seed_data_set_or_ledger(own, mapped) -> None:
    with pytest.raises(ConfigError, match="E266 Site B has two policies") as caught:
        SitePolicy(**own).with_mapped("B", mapped)
    assert "etc" not in caught.value.public + caught.value.detail


def test_a_total_in_a_mapped_policy_needs_the_ledger_of_the_other() -> None:
    with pytest.raises(ConfigError, match="name a ledger_file"):
        SitePolicy.of_simulation().with_mapped("B", {"max_total": [[2.0, 1e-5]]})
    assert limit_of(
        SitePolicy().with_mapped("B", {"max_total": [[2.0, 1e-5]]}).max_total
    ) == limit_of([(2.0, 1e-5)])
    with pytest.raises(ConfigError, match="E010"):
        SitePolicy().with_mapped("B", {"veeto": True})


@pytest.mark.parametrize(
    ("policy", "owner", "digests", "refused"),
    [
        ({}, "", (), False),
        ({"allowed_owners": ("ann",)}, "ann", (), False),
        ({"allowed_owners": ("ann",)}, "bob", (), True),
        ({"allowed_owners": ("ann",)}, "", (), True),
        ({"image_digests": ("code:1", "sha256:2")}, "", ("code:0", "sha256:2"), False),
        ({"image_digests": ("code:1",)}, "", ("code:0", "sha256:2"), True),
        ({"image_digests": ("code:1",)}, "", (), True),
    ],
)
def test_strangers_and_other_software_are_refused(policy, owner, digests, refused) -> None:
    own = SitePolicy(**policy)
    if not refused:
        own.check_origin("B", owner=owner, digests=digests)
        return
    with pytest.raises(PrivacyBudgetError, match="E154 Site policy of site B refuses"):
        own.check_origin("B", owner=owner, digests=digests)


def test_a_refusal_says_nothing_more_unless_the_site_shares_its_numbers() -> None:
    with pytest.raises(PrivacyBudgetError) as caught:
        SitePolicy(max_run=((1.25, 1e-5),)).check_settings("B", "capedjica", CONFIG)
    assert caught.value.public == "CAPE-E154 Site policy of site B refuses this run."
    assert "max_run = 1.25 at delta 1e-5" in caught.value.detail
    open_hearted = SitePolicy(max_run=((1.25, 1e-5),), share_policy_numbers=True)
    with pytest.raises(PrivacyBudgetError) as caught:
        open_hearted.check_settings("B", "capedjica", CONFIG)
    assert caught.value.public == (
        "CAPE-E260 Site policy of site B refuses this run: max_run=1.25 at delta 1e-5 there, got 4 "
        "at delta 1e-5; "
        "only people at the site can change its policy."
    )
    with pytest.raises(PrivacyBudgetError, match="E154"):  # names are not numbers
        replace(open_hearted, veto=True).check_settings("B", "capedjica", CONFIG)


@pytest.mark.parametrize("name", ["computations/capecontrast.toml", "data/people.py"])
def test_the_digest_of_the_code_changes_with_every_file_of_rules(tmp_path, monkeypatch, name):
    """A site that named its software took another table of producers for the same."""
    for path in ("site/policy.py", "data/people.py", "computations/capecontrast.toml"):
        copy = tmp_path / "cape" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((Path(policy.__file__).parents[1] / path).read_bytes())
    monkeypatch.setattr(policy, "__file__", str(tmp_path / "cape" / "site" / "policy.py"))
    before = policy.code_digest()
    assert before == policy.code_digest()
    with (tmp_path / "cape" / name).open("a") as file:
        file.write("\n")
    assert policy.code_digest() != before
