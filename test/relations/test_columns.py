"""Relation 8 for tables: a fault of a whole column at one site of three.

That site is told, with the cause and the line to type, before anything is charged; the owner reads
a code; typed, the line brings back the numbers of the site without the fault.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cape
from cape.data.groups import read_compared
from cape.data.issues import Findings
from cape.data.person_tables import column_faults
from cape.engines.coinstac.computation import run
from cape.errors import CapeError, ConfigError
from cape.planning.consortium_folder import read_settings
from cape.planning.validate import check_folder
from cape.settings.own_words import OwnWords
from cape.site.places import SitePlaces
from cape.site.policy import SitePolicy, load_policy
from support.asked import config_of
from support.simulation import simulate

GIVEN = {
    "variables": "dx control/SZ, age 18:90, sex F/M, icv 1000:2100",
    "formula": "dx + age + sex + icv",
    "outcomes": "hippocampus 2500:5500, amygdala 900:2300",
    "public": "dx",
    "delta": 1e-5,
    "epsilon": 8.0,
}
QUESTION = config_of(**GIVEN).question
POLICY = 'tables = ["volumes.tsv"]\n'
PEOPLE = 80

Cells = dict[str, list[str]]


class Tables:
    """The two tables of a site, as columns of texts."""

    def __init__(self, seed: int, n: int = PEOPLE) -> None:
        rng = np.random.default_rng(seed)
        labels = [f"{seed}{m:03}" for m in range(n)]
        dx, sex = rng.permutation(np.arange(n) % 2), rng.permutation(np.arange(n) % 2)
        self.people: Cells = {
            "participant_id": labels,
            "dx": [("control", "SZ")[k] for k in dx],
            "age": [str(x) for x in rng.integers(20, 70, n)],
            "sex": [("F", "M")[k] for k in sex],
            "icv": [str(x) for x in rng.integers(1200, 1900, n)],
        }
        self.volumes: Cells = {
            "participant_id": list(labels),
            "hippocampus": [f"{x:.0f}" for x in 4000 - 300 * dx + 400 * rng.standard_normal(n)],
            "amygdala": [f"{x:.0f}" for x in 1600 + 200 * rng.standard_normal(n)],
        }
        self.edit: Callable[[str, str], str] = lambda name, text: text

    def written(self, folder: Path, policy: str = POLICY) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "site-policy.toml").write_text(policy)
        for name, columns in (("participants.tsv", self.people), ("volumes.tsv", self.volumes)):
            rows = [list(columns), *zip(*columns.values(), strict=True)]
            text = "\n".join("\t".join(row) for row in rows) + "\n"
            (folder / name).write_text(self.edit(name, text))
        return folder

    def change(self, column: str, how: Callable[[str], str]) -> None:
        for columns in (self.people, self.volumes):
            if column in columns and column != "participant_id":
                columns[column] = [how(cell) for cell in columns[column]]


def _number(times: float) -> Callable[[str], str]:
    return lambda cell: f"{float(cell) * times:.10g}"


def unit(t: Tables) -> None:
    t.change("icv", _number(1000))


def unit_of_an_outcome(t: Tables) -> None:
    t.change("hippocampus", _number(0.001))


def coding(t: Tables) -> None:
    t.change("sex", {"M": "male", "F": "female"}.__getitem__)


def coding_of_groups(t: Tables) -> None:
    t.change("dx", {"control": "1", "SZ": "2"}.__getitem__)


def constant(t: Tables) -> None:
    t.change("age", lambda cell: "45")


def missing(t: Tables) -> None:
    t.change("icv", lambda cell: "n/a")


def another_name(t: Tables) -> None:
    t.people["eTIV"] = t.people.pop("icv")


def decimal_comma(t: Tables) -> None:
    t.change("age", lambda cell: f"{cell},500")


def header_short(t: Tables) -> None:
    def edit(name: str, text: str) -> str:
        header, *rows = text.splitlines()
        numbered = [f"{m}\t{row}" for m, row in enumerate(rows, 1)]
        return "\n".join([header, *(numbered if name == "volumes.tsv" else rows)]) + "\n"

    t.edit = edit


def other_separator(t: Tables) -> None:
    t.edit = lambda name, text: text.replace("\t", ",")


def months(t: Tables) -> None:
    t.change("age", _number(12))


def other_ids(t: Tables) -> None:
    t.people["participant_id"] = [f"X{m}" for m in range(PEOPLE)]


def three_at_once(t: Tables) -> None:
    t.change("dx", {"control": "0", "SZ": "1"}.__getitem__)
    months(t)
    unit_of_an_outcome(t)


def one_level(t: Tables) -> None:
    t.change("sex", lambda cell: "F")


# fault -> (code that the owner reads, what the site reads, whether a line mends it to the bit)
FAULTS: dict[Callable[[Tables], None], tuple[str, str, bool]] = {
    unit: ("E139", "icv: 80 of 80 outside 1000:2100, middle 1.5", True),
    unit_of_an_outcome: ("E139", "hippocampus: 80 of 80 far outside 2500:5500, middle", True),
    coding: ("E139", "sex: 80 of 80 are of none of F, M, such as", True),
    coding_of_groups: ("E139", "dx: 80 of 80 are of none of control, SZ, such as", False),
    constant: ("E139", "age: 80 of 80 are 45: constant?", False),
    missing: ("E139", "icv: 80 of 80 people have no value", False),
    another_name: ("E139", "icv; did you mean 'etiv'?", True),
    decimal_comma: ("E139", "decimal commas?", False),
    header_short: ("E139", "80 rows have 4 cells, not 3: is the header one cell short?", False),
    other_separator: ("E138", "looks separated by a comma", False),
    months: ("E139", "months for years?", True),
    other_ids: ("E138", "none of 80 people here", False),
    one_level: ("E139", "sex: 80 of 80 are F: constant?", False),
}
every_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)


def join(folder: Path, work: Path, policy: str = "", **changed: object) -> str:
    """Return what leaves a site that is asked to join, as COINSTAC asks it."""
    places = {f"{name}Directory": str(work / name) for name in ("output", "cache", "transfer")}
    work.parent.mkdir(exist_ok=True)
    own = work.parent / "own-policy.toml"
    words = (folder / "site-policy.toml").read_text()
    own.write_text('ledger_file = "runs.jsonl"\npublic_counts = ["dx"]\n' + policy + words)
    state = {"baseDirectory": str(folder), "clientId": "b", "iteration": 1, "owner": "ann",
             **places}  # fmt: skip
    asked = {**GIVEN, "computation": "capecontrast", "n_sites": 3, **changed}
    document = {"input": asked, "cache": {}, "state": state}
    try:
        return json.dumps(run("local", document, SitePlaces(policy=own))["output"])
    except CapeError as err:
        return err.public


@every_fault
def test_that_site_is_told_why_and_nothing_is_charged(tmp_path, fault) -> None:
    code, told, _ = FAULTS[fault]
    tables = Tables(2)
    fault(tables)
    folder = tables.written(tmp_path / "b")
    said = join(folder, tmp_path / "run" / "1")
    assert said.startswith(f"CAPE-{code} ")
    # The owner reads nothing of the cells, and a column by name only where it is not there.
    assert not re.search(r"\d", said.removeprefix(f"CAPE-{code}"))
    assert ("icv" in said) == (fault is another_name)
    why = (tmp_path / "run" / "1" / "output" / "site-error.txt").read_text()
    assert told in why
    ledger = tmp_path / "run" / "runs.jsonl"
    assert not ledger.exists() or '"charge"' not in ledger.read_text()


@every_fault
def test_the_line_that_is_printed_mends_it(tmp_path, fault) -> None:
    _, told, mends = FAULTS[fault]
    right, wrong = Tables(2), Tables(2)
    fault(wrong)

    def read(tables: Tables, policy: str, where: str):
        folder = tables.written(tmp_path / where, policy)
        words, findings = load_policy(folder / "site-policy.toml").words, Findings("b")
        people = read_compared(folder, words, QUESTION, right.people["participant_id"], findings)
        return people, findings

    _, findings = read(wrong, POLICY, "b")
    assert findings.blocked
    text = " ".join(finding.private for finding in findings.listing())
    assert told in text
    assert ".csv" not in text  # it proposed a participants.csv, which a site cannot use
    assert sum(finding.severity == "E" for finding in findings.listing()) == 1
    lines = re.findall(r"(?:variables|levels)\.\S+ = (?:\".*?\"|[\d.e-]+)", text)
    lines = [line for line in lines if "..." not in line]
    assert bool(lines) == mends
    # Typed above all tables; of another coding, whichever way round.
    people, findings = read(wrong, "\n".join([*lines, POLICY]), "mended")
    assert findings.blocked != mends
    if mends:
        expected, _ = read(right, POLICY, "right")
        for name, codes in expected.codes.items():
            np.testing.assert_allclose(people.codes[name], codes, rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(people.u, expected.u, rtol=1e-3, atol=1e-3)
    elif found := re.search(r"as_it_is = \[.*?\]", text):
        _, findings = read(wrong, f"{found[0]}\n{POLICY}", "as it is")
        assert not findings.blocked


def test_a_table_as_a_spreadsheet_writes_it_is_the_same_table(tmp_path) -> None:
    """Semicolons were refused, then decimal commas: two corrections before the first run."""

    def read(where: str, edit: Callable[[str, str], str]):
        tables = Tables(2)
        for name in ("age", "icv", "hippocampus"):
            tables.change(name, lambda cell: f"{cell}.25")
        tables.edit = edit
        folder, findings = tables.written(tmp_path / where), Findings("b")
        words = load_policy(folder / "site-policy.toml").words
        labels = tables.people["participant_id"]
        people = read_compared(folder, words, QUESTION, labels, findings)
        return people, [finding.private for finding in findings.listing()]

    def as_excel(name: str, text: str) -> str:
        return text.replace("\t", ";").replace(".", ",")

    def one_has_two_readings(name: str, text: str) -> str:
        return re.sub(r"(;\d\d,25)\b", ";45,500", as_excel(name, text), count=1)

    right, findings = read("right", lambda name, text: text)
    assert not findings
    people, findings = read("excel", as_excel)
    assert not findings
    assert all((people.codes[name] == codes).all() for name, codes in right.codes.items())
    assert (people.u == right.u).all()
    # One person's cell decides how that cell is read, and no other.
    people, (told,) = read("one", one_has_two_readings)
    assert "decimal_commas" in told
    differ = people.codes["age"] != right.codes["age"]
    assert differ.sum() == 1
    assert np.isnan(people.codes["age"][differ]).all()


def test_all_faulty_columns_are_told_in_one_go(tmp_path) -> None:
    """Only dx was: nobody was in a level, so that no other column had a person to judge it by."""
    tables = Tables(2)
    three_at_once(tables)
    folder = tables.written(tmp_path / "b")
    owner = read_settings(None, {**GIVEN, "computation": "capecontrast", "n_sites": 3})
    checked = check_folder(folder, owner, policy=SitePolicy.of_simulation())
    assert [finding.severity for finding in checked.findings] == ["E"] * 3
    said = join(folder, tmp_path / "run" / "1")
    assert said == "CAPE-E139 Site b cannot use a column; see its site-error.txt."
    error = (tmp_path / "run" / "1" / "output" / "site-error.txt").read_text()
    text = "\n".join(finding.private for finding in checked.findings)
    for told in (text, error):
        assert "another coding?" in told
        assert "months for years?" in told
        assert "hippocampus: 80 of 80 far outside" in told
    # One that is not there hides no other: a site mended one column after another, in three rounds.
    tables.people["my_age"] = tables.people.pop("age")
    folder = tables.written(tmp_path / "d")
    text = "\n".join(f.private for f in check_folder(folder, owner, policy=SitePolicy()).findings)
    for told in ("a column age", "another coding?", "hippocampus: 80 of 80 far outside"):
        assert told in text
    # Where the lines stand, and how validate finds them, is said before it is tried.
    assert text.count("before any line that begins with [; cape validate takes that file by") == 3
    assert "its own site policy, or leave it out of public" in text
    (tmp_path / "own.toml").write_text('[tables]\nvolumes = "volumes.tsv"\n')
    with pytest.raises(ConfigError, match=r'as tables = \["..."\] above all lines that begin'):
        load_policy(tmp_path / "own.toml")
    # Columns that are not there, too: in the headers of both tables.
    t = Tables(2)
    for columns, name in ((t.people, "icv"), (t.people, "age"), (t.volumes, "amygdala")):
        columns[f"my_{name}"] = columns.pop(name)
    checked = check_folder(t.written(tmp_path / "c"), owner, policy=SitePolicy.of_simulation())
    text = " ".join(finding.private for finding in checked.findings)
    assert all(f"a column {name}" in text for name in ("age, icv", "amygdala"))


@pytest.mark.parametrize("fault", [months, coding], ids=lambda f: f.__name__)
def test_others_stand(tmp_path, fault) -> None:
    """`join` needs every site that the owner named, so the run ends there; without the site it
    gives what it gives where the site never was."""
    for seed, name in enumerate("ac", 1):
        Tables(seed).written(tmp_path / "three" / name)
        Tables(seed).written(tmp_path / "two" / name)
    wrong = Tables(5)
    fault(wrong)
    bad = wrong.written(tmp_path / "three" / "b")
    how = {"settings": {**GIVEN, "computation": "capecontrast", "min_sites": 2}, "seed": 4}
    with pytest.raises(CapeError, match="Site b") as stop:
        simulate(tmp_path / "three", out=tmp_path / "out", **how)
    assert stop.value.code == "CAPE-E139"
    assert "ask the owner" not in str(stop.value)
    bad.rename(tmp_path / "apart")
    for name in ("three", "two"):
        simulate(tmp_path / name, out=tmp_path / f"{name}-out", **how)
    one, two = ((tmp_path / f"{name}-out" / "consortium" / "effects.tsv").read_bytes()
                for name in ("three", "two"))  # fmt: skip
    assert one == two


def test_python_and_validate_tell_it_too(tmp_path) -> None:
    tables = {name: Tables(seed) for seed, name in enumerate("abc", 1)}
    months(tables["b"])
    columns = {name: {**t.people, **t.volumes} for name, t in tables.items()}
    asked = {k: GIVEN[k] for k in ("variables", "outcomes", "public", "epsilon")}
    with pytest.raises(CapeError, match="Site b") as stop:
        cape.compare_groups(columns, GIVEN["formula"], **asked)
    assert "months for years?" in str(stop.value) + stop.value.detail
    folder = tables["b"].written(tmp_path / "b")
    owner = read_settings(None, {**GIVEN, "computation": "capecontrast", "n_sites": 3})
    checked = check_folder(folder, owner, policy=SitePolicy.of_simulation())
    (worst, *others) = checked.findings
    assert (worst.severity, worst.code) == ("E", "CAPE-E139")
    assert "months for years?" in worst.private
    assert not any(other.severity == "E" for other in others)


def test_validate_says_before_a_budget_is_chosen_that_counts_stay_here(tmp_path) -> None:
    """It was READY (exit 0), and every run was refused."""
    folder = Tables(2).written(tmp_path / "b")
    given = {k: v for k, v in GIVEN.items() if k not in ("epsilon", "delta")}
    owner = read_settings(None, {**given, "computation": "capecontrast"})
    for policy, code in (
        (SitePolicy(), "CAPE-E168"),  # the folder has a file, with words of its own
        (SitePolicy.of_simulation(public_counts=(), min_group=5), "CAPE-E168"),
        (SitePolicy.of_simulation(public_counts=("DX",), min_group=5), ""),
    ):
        checked = check_folder(folder, owner, policy=policy)
        assert "".join(finding.code for finding in checked.findings) == code
        assert sum(checked.sites[0].counts) == PEOPLE
    (folder / "site-policy.toml").unlink()
    found = check_folder(folder, owner, policy=SitePolicy()).findings
    assert any(finding.private.endswith("Give that file with --policy.") for finding in found)


def test_what_a_refused_count_needs_is_said_by_its_kind(tmp_path) -> None:
    """It said to compare epsilon with its file."""
    folder = Tables(2).written(tmp_path / "b")
    owner = read_settings(None, {**GIVEN, "computation": "capecontrast"})
    policy = SitePolicy(max_run=((1.0, 1e-5),))
    found = check_folder(folder, owner, policy=policy).findings
    texts = {finding.code: finding.private for finding in found if finding.severity == "E"}
    assert 'add public_counts = ["dx"]' in texts["CAPE-E168"]
    assert "Fix:" not in texts["CAPE-E168"]
    assert "For this site alone: max_run = 1 at delta 1e-5" in texts["CAPE-E154"]
    assert "change this line" in texts["CAPE-E154"]


# -- what an owner may learn ---------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["content", "header"])
def test_three_columns_that_cannot_be_used_end_it(tmp_path, wrong) -> None:
    """What cells decide counts as an access of the owner; what a header says does not."""
    tables = Tables(2)
    (months if wrong == "content" else another_name)(tables)
    folder = tables.written(tmp_path / "b")
    said = [join(folder, tmp_path / "run" / str(n))[:9] for n in range(4)]
    last = "CAPE-E239" if wrong == "content" else "CAPE-E139"
    assert said == ["CAPE-E139"] * 3 + [last]


CELLS = (
    "", "1", "2", "41,5", "1e308", "-1e308", "1e-320", "nan", "inf", "x" * 50, '"', "'", "{0}",
    "\\", "SZ", "male", "F", "-9", "1.5e6", "\ufdfd", "=1+1", "40", "3000", "3.2e6",
)  # fmt: skip


def test_no_cell_is_an_error_or_a_warning(tmp_path) -> None:
    """What a site is told is made of cells; an error would tell everybody about one."""
    rng = np.random.default_rng(1)
    words = OwnWords.from_mapping(
        {"tables": ["volumes.tsv"], "variables": {"age": {"times": 1e12}}}
    )
    question = config_of(**{**GIVEN, "outcomes": "hippocampus 2500:5500, log(amygdala) 1e-8:3e9"})
    for n in (1, 9, 10, 40) * 12:
        tables = Tables(1, n)
        for name in ("dx", "age", "sex", "icv", "hippocampus", "amygdala"):
            pool = rng.choice(CELLS, 3)
            tables.change(name, lambda cell, pool=pool: str(rng.choice(pool)))
        findings = Findings("b")
        folder = tables.written(tmp_path)
        listed = tables.people["participant_id"]
        read_compared(folder, words, question.question, listed, findings)
        assert all(finding.private for finding in findings.listing())


@pytest.mark.parametrize("column", ["age", "sex", "icv", "hippocampus"])
def test_an_owner_counts_no_other_column(tmp_path, column) -> None:
    """Who had no number in any column that the owner named fell out of the counts of `public`: one
    run that was never charged counted the people who have one, for every column."""
    said = []
    for n, cell in enumerate(("", "41,3", "\xff", '"', "1e9", "a\tb", "y" * 200_000)):
        tables = Tables(2)
        for columns in (tables.people, tables.volumes):
            if column in columns:
                columns[column][:3] = [cell] * 3
        folder = tables.written(tmp_path / str(n) / "b")
        card = json.loads(join(folder, tmp_path / str(n) / "run" / "1"))["body"]
        del card["nonce"]
        said.append(card)
    assert said[0]["counts"] == [PEOPLE // 2, PEOPLE // 2]
    assert all(card == said[0] for card in said)


def test_a_policy_that_lets_no_content_stop_a_run_is_only_told(tmp_path) -> None:
    tables = Tables(2)
    months(tables)
    folder = tables.written(tmp_path / "b")
    said = join(folder, tmp_path / "run" / "1", "stop_if_most_fail = false\n")
    assert "counts" in said


@pytest.mark.parametrize("n", [9, 10, 40])
@pytest.mark.parametrize("column", ["dx", "age", "sex", "icv", "hippocampus"])
def test_one_person_does_not_decide(n, column) -> None:
    """Of a column that is right, or that all but one have alike, one cell stops nothing: else an
    owner reads for nothing whether a site has anybody of a rare level."""

    def stops(tables: Tables, folder: Path) -> bool:
        words, findings = OwnWords(tables=("volumes.tsv",)), Findings("b")
        listed = tables.people["participant_id"]
        read_compared(tables.written(folder), words, QUESTION, listed, findings)
        return findings.blocked

    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        calm = Tables(7, n)
        where = calm.people if column in calm.people else calm.volumes
        assert not stops(calm, Path(scratch))
        for cell in ("n/a", "1e9", "-", "?", "41,3", ""):
            kept = where[column][3]
            where[column][3] = cell
            assert not stops(calm, Path(scratch)), cell
            where[column][3] = kept
        alike = [where[column][0]] * n
        for others in (0, 1):
            where[column][:] = alike
            where[column][:others] = [{"dx": "SZ", "sex": "M"}.get(column, "1500")] * others
            if column in ("dx", "sex"):
                where[column][others:] = [{"dx": "control", "sex": "F"}[column]] * (n - others)
            assert stops(calm, Path(scratch)) == (n >= 10), others


def test_a_public_word_means_what_the_site_s_table_says(tmp_path) -> None:
    """`public_counts` names a column of the site's tables, not a word of the owner."""
    tables = Tables(2)
    tables.people["diagnosis"] = tables.people.pop("dx")
    words = 'variables.dx.column = "diagnosis"\n' + POLICY
    folder = tables.written(tmp_path / "b", words)
    assert "CAPE-E168" in (said := join(folder, tmp_path / "run" / "1"))
    assert "diagnosis" not in said
    detail = (tmp_path / "run" / "1" / "output" / "site-error.txt").read_text()
    assert "call it diagnosis" in detail
    policy = SitePolicy.from_mapping(
        {"public_counts": ["Diagnosis "], "variables": {"dx": {"column": "diagnosis"}}}
    )
    config = config_of(**{**GIVEN, "n_sites": 3})
    policy.check_settings("b", "capecontrast", config)


def test_few_are_told_in_the_words_of_the_site(tmp_path) -> None:
    tables = Tables(2)
    tables.people["diagnosis"] = tables.people.pop("dx")
    tables.change("diagnosis", lambda cell: {"SZ": "schizophrenia"}.get(cell, cell))
    tables.people["diagnosis"][2:] = ["control"] * (PEOPLE - 2)
    tables.people["diagnosis"][:2] = ["schizophrenia"] * 2
    folder = tables.written(tmp_path / "b")
    given = {
        "variables": {"dx": {"column": "diagnosis"}},
        "levels": {"dx": {"SZ": "schizophrenia"}},
        "tables": ["volumes.tsv"],
        "as_it_is": ["dx"],
    }
    findings = Findings("b")
    words = OwnWords.from_mapping(given)
    people = read_compared(folder, words, QUESTION, tables.people["participant_id"], findings)
    people.note_few(QUESTION, 5, findings)
    text = " ".join(finding.private for finding in findings.listing())
    assert "diagnosis SZ: 2, min_group = 5" in text
    assert people.said(QUESTION, 5)[1] == (PEOPLE - 2, 0)


def test_without_public_columns_no_count_leaves(tmp_path) -> None:
    folder = Tables(2).written(tmp_path / "b")
    said = json.loads(join(folder, tmp_path / "run" / "1", public="", ask="dx"))
    assert "counts" not in said["body"] or said["body"]["counts"] == []


def test_two_levels_with_one_word_are_refused(tmp_path) -> None:
    folder = Tables(2).written(tmp_path / "b")
    words = OwnWords.from_mapping({"levels": {"dx": {"control": "SZ"}}, "tables": ["volumes.tsv"]})
    (verdict,) = column_faults(folder, words, QUESTION)
    assert "alike" in str(verdict)
