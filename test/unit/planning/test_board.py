"""The form for a board: a text for every computation, and figures that are computed."""

import json
import math
import re
from statistics import NormalDist

import pytest

from cape.cli import main
from cape.computations import load, names
from cape.errors import ConfigError
from cape.planning.board import ASKED_TEXTS, BOARD_TEXTS, board_facts, board_texts
from cape.planning.consortium_folder import read_settings
from cape.privacy.accounting import gdp_mu
from cape.site.policy import SitePolicy

BUDGET = {"epsilon": 2.0, "delta": 1e-5, "n_sites": 4}
QUESTION = {
    "computation": "capecontrast", "variables": "dx control/SZ, age 18:90",
    "formula": "dx + age", "outcomes": "hippocampus 2500:5500",
}  # fmt: skip


def text_of(**settings: object) -> str:
    owner = read_settings(None, {**BUDGET, **settings})
    return board_texts(board_facts(owner, n_sites=4, policy=SitePolicy()), ("en", "de"))


def test_every_computation_with_a_guarantee_has_its_words_in_each_language() -> None:
    assert set(BOARD_TEXTS) == {name for name in names() if load(name).guarantee == "dp"}
    for name, words in BOARD_TEXTS.items():
        given = QUESTION if name == "capecontrast" else {"computation": name}
        text = text_of(**given)
        for language in ("en", "de"):
            assert words[language].format(asked=ASKED_TEXTS["groups"][language]) in text, name
        assert not re.search(r"wir:\s+(ob|wie) ", text)  # a clause after a colon


def test_participants_are_told_of_groups_of_the_study_and_never_of_a_column() -> None:
    """They read that measurements differ "with dx"; the board reads the column's name as well."""
    for asked, kind in (("dx + age", "groups"), ("age", "values")):
        for_board, text = text_of(
            **{**QUESTION, "formula": asked, "ask": asked.partition(" ")[0]}, public="dx"
        ).split("## For participants")
        assert f"named in the study ({asked.partition(' ')[0]})" in for_board
        assert not re.search(r"\bdx\b|\bage\b|\bSZ\b|\bcontrol\b", text)
        assert all(words in text for words in ASKED_TEXTS[kind].values())


def test_the_form_says_the_odds_that_the_accountant_gives() -> None:
    right = 100 * NormalDist().cdf(gdp_mu(epsilon=2.0, delta=1e-5) / 2)
    ((epsilon, delta),) = SitePolicy().max_total
    of_all = 100 * NormalDist().cdf(gdp_mu(epsilon=epsilon, delta=delta) / 2)
    text = text_of(computation="capegica")
    assert f"is right in {math.ceil(right)} of 100 bets at most" in text
    assert f"then {math.ceil(of_all)} of 100 bets" in text
    assert f"höchstens {math.ceil(right)} von 100" in text
    # 50.35 was printed as "50 of 100 bets at most; a coin in 50".
    assert "is right in 50.4 of 100 bets at most" in text_of(computation="capegica", epsilon=0.05)
    assert "epsilon 2 at delta 1e-5" in text
    assert "together with 1 of the 4 hospitals" in text
    assert "epsilon 3.7" in text  # three of four invented


def test_a_plan_that_the_policy_refuses_says_so_and_no_question_has_no_form() -> None:
    """A board read a whole form of a run that every site refuses, or of "whether differ with |"."""
    assert "May it run?" not in text_of(**QUESTION)
    refused = "**not with this policy**: CAPE-E260 max_run=8"
    assert refused in text_of(computation="capegica", epsilon=9.0)
    assert "public_counts" in text_of(**QUESTION, public="dx").partition("What is computed")[0]
    without = {name: value for name, value in QUESTION.items() if name != "outcomes"}
    with pytest.raises(ConfigError) as told:
        text_of(**without)
    assert told.value.code == "CAPE-E013"


def test_a_comparison_of_public_labels_says_that_groups_are_not_protected_and_others_do_not():
    public = text_of(**QUESTION, public="dx")
    for told in (
        "control, SZ (fewer than 5: 0)", "belongs to a group is **not** protected",
        "each group named in the study is published",
        "can read the last one's group", "another person of your group",
        "Dass Sie zu einer Gruppe gehören, ist deshalb nicht geschützt",
    ):  # fmt: skip
        assert told in public, told
    for text in (text_of(**QUESTION), text_of(computation="capegica")):
        assert "not** protected" not in text
        assert "nicht geschützt" not in text
        assert "of your group" not in text
    assert "no count of any group leaves" in text_of(**QUESTION)
    assert "no count of any group leaves" not in text_of(computation="capegica")


def test_the_form_says_whether_the_server_sees_the_sum_of_one_hospital() -> None:
    """It said that all sums are masked, also of computations that send them in the clear."""
    seen = "in the sum of each hospital, which the server sees"
    assert seen in text_of(computation="papermean")
    assert seen in text_of(computation="dpdispca")
    assert seen in text_of(computation="capegica", noise="local")
    for text in (
        text_of(computation="capegica"),
        text_of(computation="papermean", zero_sum="ring"),
    ):
        assert seen not in text
        assert "masked so that only the sum over all hospitals can be read" in text


def test_of_two_hospitals_the_board_reads_what_the_other_learns() -> None:
    """`cape flare job` said it in an error, and the form told a board nothing of it."""
    seen = "of two each learns the other's sum"
    for n_sites in (2, 3):
        owner = read_settings(None, {**BUDGET, "computation": "capegica", "n_sites": n_sites,
                                     "min_sites": 2})  # fmt: skip
        text = board_texts(board_facts(owner, n_sites=n_sites, policy=SitePolicy()), ("en",))
        assert (seen in text) == (n_sites == 2)


def test_a_form_without_blanks_asks_for_nothing_and_every_paragraph_for_people_is_quoted() -> None:
    owner = read_settings(None, {**BUDGET, **QUESTION, "public": "dx"})
    for aggregator in ("Clinic X", ""):
        facts = board_facts(owner, n_sites=4, policy=SitePolicy(), aggregator=aggregator)
        board, *people = board_texts(facts, ("en", "de")).split("## F")
        assert ("Brackets" in board) == ("[name of" in board) == (not aggregator)
        for text in people:
            # Counts below the floor are no exact ones.
            assert not re.search("exactly|genau", text)
            assert all(line.startswith(">") for line in text.splitlines()[2:] if line)


def test_one_lab_alone_is_told_of_no_other_hospital() -> None:
    alone = {"epsilon": 1, "delta": 1e-5, "min_sites": 1, "noise": "local"}
    owner = read_settings(None, {**alone, "computation": "capegica"})
    facts = board_facts(owner, n_sites=1, policy=SitePolicy(max_total=()))
    text = board_texts(facts, ("en", "de"))
    assert not re.search(r"server|aggregator|\[|other hospital|each hospital", text, re.I)
    assert "invents" not in text
    assert "The policy sets no limit" in text


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--set private=false", "CAPE-E016"),
        ("--set computation=djica", "CAPE-E016"),
        ("--set assumed_colluders=4", "CAPE-E"),
    ],
)
def test_settings_that_promise_nothing_get_no_form(tmp_path, capsys, words, code) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("epsilon = 2\ndelta = 1e-5\nn_sites = 4\n")
    assert main(["promise", "--settings", str(path), *words.split()]) == 2
    assert code in capsys.readouterr().err
    path.write_text("epsilon = 2\ndelta = 1e-5\n")
    assert main(["promise", "--settings", str(path)]) == 2
    assert "--sites" in " ".join(re.sub("[│╭╰─╮╯]", " ", capsys.readouterr().err).split())
    path.write_text("n_sites = 4\n")
    assert main(["promise", "--settings", str(path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "CAPE-E013 setting 'epsilon' is required" in said
    assert "write epsilon and delta into" in said
    # It asked for epsilon again.
    assert main(["promise", "--settings", str(path), "--set", "epsilon=1"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "CAPE-E013 setting 'delta' is required" in said
    assert "write delta into" in said


def test_the_command_writes_what_it_prints_and_fills_in_who_runs_the_server(tmp_path, typed):
    path, out = tmp_path / "settings.toml", tmp_path / "form.md"
    path.write_text("epsilon = 2\ndelta = 1e-5\nn_sites = 4\n")
    line = ["promise", "--settings", str(path), "--aggregator", "Clinic X", "--language", "de"]
    document = json.loads(typed(*line, "--json").out)
    assert main([*line, "--out", str(out)]) == 0
    assert out.read_text() == document["text"]
    assert "Den Server betreibt Clinic X" in document["text"]
    assert "For participants" not in document["text"]
    assert "[" not in document["text"].partition("\n\n|")[2]
