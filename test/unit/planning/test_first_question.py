"""``cape init`` on tables of people: every column is named; ranges are never those of the data."""

import tomllib
from pathlib import Path

import pytest

from cape.data.people import PeopleList
from cape.errors import ConfigError
from cape.planning.first_question import columns_of
from cape.planning.first_settings import InitOptions, propose
from cape.settings.question import parse_question
from cape.settings.usual import are_alike, usual_range

N = 40
COLUMNS: dict[str, tuple[list[str], str]] = {
    "dx": (["SZ", "control"] * (N // 2), "levels SZ 20, control 20"),
    "sex": (["1", "2"] * (N // 2), "levels 1 20, 2 20"),
    "age": ([str(20 + m) for m in range(N)], "numbers, usually 18:90 years"),
    "eTIV": ([str(1.2e6 + m) for m in range(N)], "numbers, usually 1000:2100 cm3"),
    "crp": ([f"{m / 7:.3f}" for m in range(N)], "numbers, whose range nobody but you can state"),
    "subtype": (["rare", *["common"] * (N - 1)], "levels common 39, rare 1"),
    "bmi": ([f"{20 + m},500" for m in range(N)], "not used: decimal commas: write numbers with a"),
    "scan": (["12.03.2024"] * (N - 1) + ["13.3.24"], "not used: dates"),
    "notes": ([f"tired {m}" for m in range(N)], f"not used: texts of {N} kinds"),
    "empty": (["n/a"] * N, "not used: every cell is empty"),
    "same": (["x"] * N, "not used: all have one value"),
    "left hippocampus": ([str(3000 + m) for m in range(N)], "numbers, usually 2500:5500 mm3"),
    'a "b"': (["u", "v"] * (N // 2), "levels u 20, v 20"),
}


def written(folder: Path, names: list[str]) -> Path:
    folder.mkdir(parents=True)
    columns = [COLUMNS[name][0] for name in names]
    rows = [["participant_id", *names], *([f"p{m}", *row] for m, row in
            enumerate(zip(*columns, strict=True)))]  # fmt: skip
    (folder / "participants.tsv").write_text("\n".join(map("\t".join, rows)) + "\n")
    return folder


def test_every_column_is_named_with_its_kind(tmp_path) -> None:
    proposal = propose(InitOptions(folder=written(tmp_path / "lab", list(COLUMNS))))
    told, settings = "\n".join(proposal.counts), tomllib.loads(proposal.text)
    for name, (_, kind) in COLUMNS.items():
        assert f"participants.tsv: {name}: {kind}" in told
    question = parse_question(
        **{name: settings[name] for name in ("variables", "formula", "outcomes", "public")}
    )
    assert [one.name for one in question.variables] == ["dx", "sex", 'a "b"', "age", "eTIV"]
    assert question.variable("dx").levels == ("control", "SZ")
    assert (question.variable("age").low, question.variable("age").high) == (18, 90)
    assert [one.name for one in question.outcomes] == ["left hippocampus"]
    assert settings["public"] == "dx"
    # What is not asked stands in the file by name, and a level of one person does not.
    for name in ("crp", "subtype", "bmi", "scan", "notes", "empty", "same"):
        assert name in proposal.text
    assert "rare" not in proposal.text
    assert "39" not in proposal.text


def test_ranges_do_not_hang_on_data(tmp_path) -> None:
    one = propose(InitOptions(folder=written(tmp_path / "one" / "lab", list(COLUMNS))))
    kept = COLUMNS["age"]
    try:
        COLUMNS["age"] = ([str(50 + m) for m in range(N)], kept[1])
        other = propose(InitOptions(folder=written(tmp_path / "other" / "lab", list(COLUMNS))))
    finally:
        COLUMNS["age"] = kept
    assert one.text == other.text


def test_a_column_that_a_site_lacks_is_said_and_not_asked(tmp_path) -> None:
    names = ["dx", "age", "left hippocampus"]
    written(tmp_path / "study" / "a", names)
    written(tmp_path / "study" / "b", [names[0], names[2]])
    proposal = propose(InitOptions(folder=tmp_path / "study"))
    assert any(line.endswith("age: numbers, usually 18:90 years; not at b")
               for line in proposal.counts)  # fmt: skip
    assert tomllib.loads(proposal.text)["variables"] == "dx control/SZ"
    # The file read as if nobody knew why.
    assert "age (numbers, not at b)" in proposal.text


@pytest.mark.parametrize("names", [["dx", "crp"], ["notes"]])
def test_without_outcomes_of_a_known_range_the_owner_states_them(tmp_path, names) -> None:
    proposal = propose(InitOptions(folder=written(tmp_path / "lab", names)))
    settings = tomllib.loads(proposal.text)
    assert settings["computation"] == "capecontrast"
    assert "outcomes" not in settings
    assert names[-1] in proposal.text


def test_a_table_that_cannot_be_read_is_named_with_the_reason(tmp_path) -> None:
    folder = written(tmp_path / "lab", ["dx", "age"])
    (folder / "phenotype").mkdir()
    (folder / "phenotype" / "iq.tsv").write_text("subject\tiq\np1\t100\n")
    # Where tables alone state the people it might state some.
    with pytest.raises(ConfigError, match=r"phenotype/iq\.tsv: no column participant_id"):
        propose(InitOptions(folder=folder))
    columns, unread = columns_of({"lab": PeopleList(site="lab", folder=folder)})
    assert [column.name for column in columns] == ["dx", "age"]
    assert unread[0].startswith("lab: phenotype/iq.tsv: A table of people does not say who is who")


def test_other_files_beside_tables_are_refused_or_named(tmp_path) -> None:
    """Settings of tables were written for a folder of images whose people nobody stated."""
    folder = written(tmp_path / "lab", ["dx", "age"])
    (folder / "README.txt").write_text("notes\n")
    (folder / "volumes.csv").write_text("participant_id,left\np1,3\n")
    told = propose(InitOptions(folder=folder)).counts
    (line,) = (line for line in told if line.startswith("lab: volumes.csv is not read; "))
    assert line.endswith('write into site-policy.toml tables = ["volumes.csv"]')
    (folder / "scan_a.nii.gz").touch()
    with pytest.raises(ConfigError, match="Nothing states whose the files are"):
        propose(InitOptions(folder=folder))


def test_names_of_one_thing() -> None:
    assert are_alike("ICV", "EstimatedTotalIntraCranialVol")
    assert are_alike("Left-Hippocampus", "hippocampus_vol")
    assert not are_alike("age", "icv")
    assert not are_alike("x", "x")
    assert usual_range("note") is None
