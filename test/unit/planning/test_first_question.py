"""What `cape init` proposes of groups: words of one site, never its numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cape.lab.synthetic.consortium import Request, write_consortium
from cape.planning.first_question import first_question
from cape.planning.first_settings import propose


def table(folder: Path, header: str, *rows: str, times: int = 6) -> Path:
    path = folder / "participants.tsv"
    lines = [f"sub-{k}\t{row}" for k, row in enumerate(rows * times)]
    path.write_text("\n".join([f"participant_id\t{header}", *lines]) + "\n", encoding="utf-8")
    return path


def test_groups_and_covariates_are_proposed_by_name_with_public_ranges(tmp_path) -> None:
    path = table(
        tmp_path, "age\tSex\tdx\tfd_mean\tnote",
        "93\tF\thc\t.9\tx", "21\tM\tscz\t.1\ty", "n/a\tM\tscz\t.1\tz",
    )  # fmt: skip
    found = first_question(path)
    assert found == {"group": "dx: scz, hc", "covariates": "age 18:90, Sex F/M, fd_mean 0:.5"}


def test_ranges_do_not_follow_values_and_levels_of_few_are_not_said(tmp_path) -> None:
    """A range that followed people would tell of the oldest one."""
    rows = ["70\tcontrol", "71\tcase"]
    known = first_question(table(tmp_path, "age\tdiagnosis", *rows))
    assert known == first_question(table(tmp_path, "age\tdiagnosis", "18\tcontrol", "19\tcase"))
    path = table(tmp_path, "age\tdiagnosis", *rows)
    path.write_text(path.read_text() + "sub-z\t99\ta rare disease\n")
    assert first_question(path) == known


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("dx", ["one"]),
        ("dx", ["a, b", "c"]),
        ("dx\tage\tAge", ["a\t1\t2", "b\t1\t2"]),
        ("weight", ["60", "70"]),
    ],
)
def test_where_nothing_can_be_compared_nothing_is_proposed(tmp_path, header, rows) -> None:
    assert first_question(table(tmp_path, header, *rows)) == {}
    assert first_question(tmp_path / "none.tsv") == {}


def test_three_levels_are_compared_with_controls(tmp_path) -> None:
    path = table(tmp_path, "group", "bipolar", "control", "autism")
    assert first_question(path)["group"] == "group: autism, control"


def test_init_writes_the_question_as_a_comment(tmp_path) -> None:
    request = Request(
        preset="groups", n_sites=2, site_sizes=(24, 20), n_timepoints=20, n_networks=2
    )
    write_consortium(tmp_path / "study", request)
    (tmp_path / "study" / "settings.toml").unlink()
    text = propose(tmp_path / "study").text
    assert '# group = "dx: patient, control"' in text
    assert '# covariates = "age 18:90, sex female/male, fd_mean 0:.5"' in text
    assert "propose is to choose" in text
    assert not any(line.startswith("group") for line in text.splitlines())
