"""Tables of records: rows are subjects, the header is public, whatever is wrong is named."""

from pathlib import Path

import pytest

from cape.computations import load
from cape.data.pipeline import inspect_site, reduce_again
from cape.errors import CapeError, DataError
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.site.site_data import FileSource
from support.simulation import simulate
from support.sites import load_site, private_code

CONFIG = load("capecca").config.from_input({"epsilon": 1.0, "delta": 1e-3, "n_pairs": 1})
GOOD = "subject,a,b,c\nsub-2,1,2,3\nsub-1,4,5.5,-6\nsub-3,1,2,3\n"


def written(folder: Path, text: str | bytes, name: str = "records.csv") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("records.csv", GOOD),
        ("records.tsv", "# a comment\n" + GOOD.replace(",", "\t")),
        ("records.csv", b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode()),
    ],
)
def test_every_row_is_a_subject_with_one_record(tmp_path, name, text) -> None:
    """Equal rows are allowed: two people may have given the same answers."""
    data = load_site(written(tmp_path, text, name), {}, CONFIG, site="A")
    assert [subject.label for subject in data.subjects] == ["sub-2", "sub-1", "sub-3"]
    rows = {label: X.ravel().tolist() for label, X in reduce_again(data, None, CONFIG)}
    assert rows == {"sub-2": [1, 2, 3], "sub-1": [4, 5.5, -6], "sub-3": [1, 2, 3]}
    assert data.space.n_features == 3


def test_a_row_more_makes_no_other_people_of_the_rows_before(tmp_path) -> None:
    """Else every new row would begin a new account in the site's ledger of all runs."""
    before = FileSource(written(tmp_path / "before", GOOD), {}, CONFIG, "A").people
    more = GOOD.replace("sub-1,", "sub-0,7,8,9\nsub-1,") + "# a comment\n"
    after = FileSource(written(tmp_path / "after", more), {}, CONFIG, "A").people
    other = GOOD.replace("a,b,c", "a,b,d").replace("5.5", "5.25")
    changed = FileSource(written(tmp_path / "changed", other), {}, CONFIG, "A").people
    assert set(before) < set(after)
    files = {person.files for person in before}
    assert len(files) == 2  # equal rows count as one person: too much rather than too little
    assert not files & {person.files for person in changed}
    # The name remains: other columns or corrected values are still of the same people.
    assert {p.label for p in before} == {p.label for p in changed} == {"sub-1", "sub-2", "sub-3"}


def test_a_table_may_be_mapped_by_name(tmp_path) -> None:
    base = written(tmp_path, GOOD)
    written(tmp_path, GOOD, "other.csv")
    assert len(load_site(base, {"data": ["records.csv"]}, CONFIG, site="A").subjects) == 3


@pytest.mark.parametrize("row", ["s19,1,NA", "s19,1,many", "s19,1", "s19,1,2,3", "s19,1e99,2"])
def test_a_row_that_cannot_be_used_fails_its_subject_and_nobody_else(tmp_path, row) -> None:
    text = "subject,a,b\n" + "".join(f"s{i},{i},{i}\n" for i in range(19)) + f"{row}\n"
    data = load_site(written(tmp_path, text), {}, CONFIG, site="A")
    assert len(data.subjects) == 19
    assert (data.n_subjects, data.failed) == (20, ("s19",))


@pytest.mark.parametrize(
    ("text", "code", "private"),
    [
        ("subject,a,b\ns1,1\n", "E138", "line 2 's1,1' has 2 cells"),
        ("subject,a,b\ns1,1,many\n", "E138", "'many'"),
        ("subject,a,a\ns1,1,2\n", "E138", "with the same"),
        ("subject\ns1\n", "E138", "no columns"),
        (b"subject,\xff\xfe\ns1,1\n", "E138", "UTF-8"),
        (GOOD.replace("sub-1", "sub-2"), "E105", "2"),
    ],
)
def test_what_is_wrong_is_named_at_the_site_only(tmp_path, text, code, private) -> None:
    inspection = inspect_site(written(tmp_path, text), {}, CONFIG, site="A")
    assert isinstance(inspection.error, DataError)
    assert private_code(inspection.error) == f"CAPE-{code}"
    assert private in inspection.error.detail
    assert private not in inspection.error.public


def test_sites_with_other_headers_do_not_join(tmp_path) -> None:
    folder = tmp_path / "c"
    write_consortium(folder, Request(preset="records", site_sizes=(6, 6, 6), seed=1))
    table = folder / "local1" / "records.csv"
    table.write_text(table.read_text().replace("network_02", "network_2"))
    with pytest.raises(CapeError, match="E250 The columns of the tables differ"):
        simulate(folder, out=tmp_path / "out", settings={"epsilon": 1.0, "delta": 1e-3})


def test_a_table_that_changes_during_a_run_is_refused(tmp_path) -> None:
    data = load_site(written(tmp_path, GOOD), {}, CONFIG, site="A")
    written(tmp_path, GOOD.replace("5.5", "5.25"))
    with pytest.raises(DataError, match="E161"):
        list(reduce_again(data, None, CONFIG))
