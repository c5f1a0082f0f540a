"""A site that writes a column otherwise is told by `init`, as by a run, with the line to type.

`init` pooled the cells of all sites: M and F at one with 1 and 2 at another made a column of four
levels, and the decimal commas of one site of three a column that nobody was told of.
"""

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cape import cli
from cape.data.people import PeopleList
from cape.planning.first_question import columns_of
from cape.planning.first_settings import InitOptions, propose
from cape.settings.own_words import OwnWords

N = 20
Cells = dict[str, list[str]]
OTHERWISE: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "another coding": ("sex", {"M": "1", "F": "2"}.__getitem__),
    "another word": ("dx", {"SZ": "SZ", "control": "HC"}.__getitem__),
    "decimal commas": ("age", lambda cell: cell.replace(".5", ",500")),
    "days": ("age", lambda cell: f"{float(cell) * 365.25:.0f}"),
    "texts": ("age", "about {}".format),
    "another unit": ("hippocampus", lambda cell: f"{float(cell) / 1000:.4f}"),
    "no value": ("dx", lambda cell: "n/a"),
}


def table() -> Cells:
    return {
        "dx": ["SZ", "control"] * (N // 2),
        "sex": ["M", "M", "F", "M"] * (N // 4),
        "age": [f"{30 + m}.5" for m in range(N)],
        "hippocampus": [f"{3600 + 9 * m}" for m in range(N)],
    }


def written(study: Path, change: Callable[[Cells], None] = lambda cells: None) -> Path:
    """Write three sites, the last of which writes something otherwise."""
    for k, site in enumerate("abc"):
        cells = table()
        if site == "c":
            change(cells)
        rows = [["participant_id", *cells]]
        rows += [[f"p{N * k + m}", *row] for m, row in enumerate(zip(*cells.values(), strict=True))]
        (study / site).mkdir(parents=True)
        text = "".join("\t".join(row) + "\n" for row in rows)
        (study / site / "participants.tsv").write_text(text)
    return study


def told_by_init(study: Path) -> list[str]:
    lines = propose(InitOptions(folder=study)).counts
    return [line for line in lines if line.startswith(("a: p", "b: p", "c: p", "c: no"))]


def test_sites_that_are_alike_are_told_nothing(tmp_path: Path) -> None:
    assert not told_by_init(written(tmp_path))


@pytest.mark.parametrize("fault", OTHERWISE)
def test_what_init_tells_of_a_site_validate_tells_and_one_line_mends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    name, otherwise = OTHERWISE[fault]

    def change(cells: Cells) -> None:
        cells[name] = [otherwise(cell) for cell in cells[name]]

    study = written(tmp_path, change)
    (line,) = told_by_init(study)
    assert line.startswith(f"c: participants.tsv: {name}: ")
    # The settings are those of the sites that are alike, so that the others' run is not touched.
    settings = propose(InitOptions(folder=study)).text
    assert settings == propose(InitOptions(folder=written(tmp_path / "alike"))).text
    (study / "settings.toml").write_text(settings)
    # Where half of the cells can be used, a run warns and goes on.
    warned = fault == "another word"
    assert cli.main(["validate", str(study / "c"), "--fast"]) == (0 if warned else 1)
    validated = capsys.readouterr().out
    assert ("CAPE-E139" in validated) is not warned
    keys = rf"(?:levels|variables)\.{name}(?:\.\w+)? = [^,;\s]+"
    mends = re.findall(rf"{keys}|(?:as_it_is|decimal_commas) = \[[^]]*\]", line)
    assert mends[-1] == f'as_it_is = ["{name}"]'
    assert all(mend in validated for mend in mends[:-1])
    if len(mends) > 1 and '"..."' not in line:  # for a name or a word that only the site knows
        (study / "c" / "site-policy.toml").write_text("\n".join(mends[:-1]))
        assert not told_by_init(study)
        # With a file of its own it reads that this publishes no counts of dx.
        assert cli.main(["validate", str(study / "c"), "--fast"]) == 3
        assert "CAPE-E139" not in capsys.readouterr().out
    (study / "c" / "site-policy.toml").write_text(mends[-1])
    assert not told_by_init(study)


@pytest.mark.parametrize("among", [True, False], ids=["patients have it", "anybody may"])
def test_a_column_that_most_people_lack_is_in_no_question_that_is_proposed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], among: bool
) -> None:
    """A score of patients alone stood in the formula, and `validate` refused what init proposed.

    The fault offered to fill the cells, and not to ask patients alone.
    """
    study = written(tmp_path)
    for site in "abc":
        path = study / site / "participants.tsv"
        head, *rows = path.read_text().splitlines()
        has = [("\tSZ\t" in row and k > 2) if among else k % 5 == 0 for k, row in enumerate(rows)]
        cells = ("60" if one and k % 4 else "70" if one else "" for k, one in enumerate(has))
        rows = [f"{row}\t{cell}" for row, cell in zip(rows, cells, strict=True)]
        path.write_text("\n".join([f"{head}\tPANSS", *rows, ""]))
    proposed = propose(InitOptions(folder=study))
    settings, lines = proposed.text, "\n".join(proposed.counts)
    asks = 'among = "dx SZ"'
    assert "PANSS" not in tomllib.loads(settings)["formula"]
    # Settings go to all sites: who has what is said here alone.
    assert "PANSS (numbers)" in settings
    assert "PANSS: most people have none" in lines
    assert (f"those who have it are asked by {asks}" in lines) is among
    (study / "settings.toml").write_text(settings)
    assert cli.main(["validate", str(study), "--fast"]) == 0
    capsys.readouterr()
    given = ["formula=dx + PANSS", "variables=dx control/SZ, PANSS 30:210"]
    typed = [word for text in given for word in ("--set", text)]
    assert cli.main(["validate", str(study), "--fast", *typed]) == 1
    told = capsys.readouterr().out
    assert "ask the owner to take it out of the formula" in told
    assert (asks in told) is among
    if among:
        given = ["formula=PANSS", "variables=dx control/SZ, PANSS 30:210", "among=dx SZ"]
        typed = [word for text in given for word in ("--set", text)]
        cli.main(["validate", str(study), "--fast", *typed])
        assert "CAPE-E139" not in capsys.readouterr().out


def test_mappings_are_exact(tmp_path: Path) -> None:
    def change(cells: Cells) -> None:
        cells["sex"] = [{"M": "1", "F": "2"}[cell] for cell in cells["sex"]]
        cells["Age_years"] = [f"{float(cell) * 12:.0f}" for cell in cells.pop("age")]

    study = written(tmp_path, change)
    told = "\n".join(told_by_init(study))
    # The site of this story had it the other way round than the order of the words.
    assert 'levels.sex.F = "...", levels.sex.M = "...", with the word that' in told
    assert 'variables.age.column = "Age_years"' in told
    policy = 'levels.sex.F = "2"\nlevels.sex.M = "1"\nvariables.age.column = "Age_years"\n'
    (study / "c" / "site-policy.toml").write_text(policy)
    (months,) = told_by_init(study)
    assert "months for years" in months
    (study / "c" / "site-policy.toml").write_text(policy + "variables.age.times = 0.0833333333\n")
    assert not told_by_init(study)
    assert "sex F/M" in tomllib.loads(propose(InitOptions(folder=study)).text)["variables"]


@pytest.mark.parametrize("name", ["age", "Alter"])
def test_decimal_commas_are_read_where_the_site_states_them(name: str) -> None:
    words = OwnWords(decimal_commas=(name,), variables=(("age", "Alter", 2.0),))
    read = words.reader("age")
    assert [read(cell) for cell in ("41,3", " -0,5", "41")] == [82.6, -1.0, 82.0]
    # A point may stand for thousands.
    assert all(math.isnan(read(cell)) for cell in ("1.234", "1.234,5", "4,1,3", ",", "1,5 kg"))
    assert words.reader("icv")("1500.5") == 1500.5
    # Of a column that it does not state, what can be nothing else.
    told = {"1500,5": 1500.5, "0,345": 0.345, "41,3": 41.3, "-1,25": -1.25, "1500,500": 1500.5}
    assert {cell: words.reader("icv")(cell) for cell in told} == told
    assert all(math.isnan(words.reader("icv")(cell)) for cell in ("1,500", "-12,345", "1,2,3"))


@pytest.mark.parametrize(("here", "there"), [
    (["SZ", "control"], ["SZ", "control", "BD"]),  # one more group
    (["SZ", "control"], ["sz", "Control"]),  # no case
    (["SZ", "control"], ["control"]),  # only controls: said by a run, which needs ten people
    (["1", "0"], ["1.0", "0"]),
    (["first"], ["second"]),  # a name of the site
])  # fmt: skip
def test_what_may_be_right_is_no_other_writing(tmp_path: Path, here, there) -> None:
    lists = {}
    for site, words in {"a": here, "b": here, "c": there}.items():
        (tmp_path / site).mkdir()
        rows = "".join(f"p{m}\t{word}\n" for m, word in enumerate(words * 2))
        (tmp_path / site / "participants.tsv").write_text(f"participant_id\tdx\n{rows}")
        lists[site] = PeopleList(site=site, folder=tmp_path / site)
    assert not columns_of(lists)[1]
