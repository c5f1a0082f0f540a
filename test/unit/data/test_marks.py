"""Who takes part: one column, exclude; whatever else looks like a mark is refused with its line.

Belongs to `cape/data/marks.py`.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from cape.computations import load
from test.support.file_lists import lay_out
from test.support.people import IMAGES, MATRIX, read, read_all

OUT = ("1", "1.0", "true", "TRUE", "True", "yes", "Yes", " yes ")
STAYS = ("0", "0.0", "false", "False", "no", "No", "", " ", "n/a", "N/A", "nan", "NA")
UNCLEAR = (
    *("2", "-1", "0.5", "y", "x", "on", "ja", "out", "excluded", "maybe", "motion", "withdrawn"),
    *("yes (motion)", "no consent", "\u2713", "1?", "+1", "\uff11", "1;0", "TRUE FALSE", "ses2"),
)
PEOPLE = ("01", "02", "03")
VOLUMES = load("capecontrast").config.from_input(
    {
        "epsilon": 1.0,
        "delta": 1e-5,
        "variables": "dx a/b",
        "formula": "dx",
        "public": "dx",
        "outcomes": "left 1:9",
    }
)


def participants(folder: Path, header: str, *rows: str) -> Path:
    """Write three people of two sessions, and a table of them; | separates cells."""
    lay_out(folder, *(f"sub-{p}/ses-{s}/sub-{p}_ses-{s}_bold.nii" for p in PEOPLE for s in "12"))
    return table(folder / "participants.tsv", "\t", header, rows)


def manifest(folder: Path, header: str, *rows: str) -> Path:
    lay_out(folder, *(f"{row.split('|')[0]}.nii" for row in rows))
    rows = tuple(f"{row}|{row.split('|')[0]}.nii" for row in rows)
    return table(folder / "manifest.csv", ",", f"{header}|file", rows)


def records(folder: Path, header: str, *rows: str) -> Path:
    return table(folder / "records.csv", ",", f"{header}|left", tuple(f"{row}|5" for row in rows))


def volumes(folder: Path, header: str, *rows: str) -> Path:
    """Write a table of a comparison, which the site names."""
    (folder / "site-policy.toml").write_text('tables = ["volumes.tsv"]\n')
    rows = tuple(f"{row}|5|{'ab'[n % 2]}" for n, row in enumerate(rows))
    return table(folder / "volumes.tsv", "\t", f"{header}|left|dx", rows)


def table(path: Path, sign: str, header: str, rows: tuple[str, ...]) -> Path:
    path.write_text("\n".join([header, *rows]).replace("|", sign) + "\n", encoding="utf-8")
    return path.parent


KINDS = {participants: IMAGES, manifest: IMAGES, records: MATRIX, volumes: VOLUMES}


@pytest.mark.parametrize("state", KINDS)
def test_one_column_leaves_out_by_few_words(state, tmp_path) -> None:
    """17 of 23 spellings of yes let people in without a word."""
    for n, cell in enumerate((*OUT, *STAYS, *UNCLEAR)):
        folder = tmp_path / str(n)
        folder.mkdir()
        state(folder, "participant_id|exclude", f"01|{cell}", "02|0", "03|")
        people, texts = read_all(folder, KINDS[state])
        if cell in UNCLEAR:
            refused = [text for text in texts if text.startswith("E ")]
            assert any("line 2" in text for text in refused), (cell, texts)
        else:
            assert not any(text.startswith("E ") for text in texts), (cell, texts)
            wanted = PEOPLE[1:] if cell in OUT else PEOPLE
            assert [person.label.removeprefix("sub-") for person in people.listed] == [*wanted]
            left_out = [person.left_out for person in people.people if person.left_out]
            name = next(p.name for p in folder.iterdir() if p.suffix in (".csv", ".tsv"))
            assert left_out == ([f"{name}, line 2"] if cell in OUT else [])


MARKS = (
    *("include", "Included", "excluded", "Exclude?", "exclude.1", "exclusion", "exclude_reason"),
    *("withdrawn", "withdrew", "consent", "consent_given", "opt_out", "opted out", "drop-out"),
    *("dropout", "do_not_use", "qc", "QC_pass", "qc_fail", "failed_qc", "reject", "rejected"),
)
NO_MARKS = (
    *("age", "sex", "site", "group", "diagnosis", "handedness", "session", "species", "education"),
    *("iq", "fd_mean", "scanner", "panss_total", "medication", "bmi", "substance_use", "visit"),
)
CELLS = {
    "status": ("withdrawn", "Withdrew consent", "drop-out", "dropped out", "opted out", "excluded"),
    "comment": ("do not use", "DO NOT USE!", "QC fail", "failed QC", "rejected", "exclude: motion"),
}


@pytest.mark.parametrize("state", [participants, manifest, volumes])
def test_what_looks_like_a_mark_is_refused_until_the_site_says_that_it_is_none(state, tmp_path):
    """`status = withdrawn` let people in who had withdrawn their consent."""
    tried = [
        *((header, "0") for header in (*MARKS, *NO_MARKS)),
        *((header, cell) for header, cells in CELLS.items() for cell in (*cells, "fine")),
    ]
    for n, (header, cell) in enumerate(tried):
        folder = tmp_path / str(n)
        folder.mkdir()
        state(folder, f"participant_id|{header}", "01|0", f"02|{cell}", "03|0")
        people, texts = read_all(folder, KINDS[state])
        refused = [text for text in texts if text.startswith("E ")]
        if header in NO_MARKS or cell == "fine":
            assert not refused, (header, cell, refused)
            assert len(people.listed) == 3
            continue
        assert refused, (header, cell)
        assert f'not_exclusions = ["{header}"]' in refused[0]
        assert header in MARKS or "line 3" in refused[0]
        with (folder / "site-policy.toml").open("a") as policy:
            policy.write(f'not_exclusions = ["{header}"]\n')
        assert len(read(folder, KINDS[state]) or ()) == 3


@pytest.mark.parametrize(
    ("header", "rows", "part"),
    [
        ("participant_id|exclude|exclude", ("01|1|0",), "exclude"),
        ("participant_id|exclude", ("01|1", "01|0"), "line 3"),
        ("participant_id|exclude", ("01|0", "|1"), "line 3"),
        ("participant_id|exclude", ("S100|1", "S200|0"), "S100"),
        ("participant_id|exclude", ("1|1", "02|0"), "same_people"),
        ("participant_id|exclude", ("01|ses-3",), "line 2"),
        ("participant_id|exclude", ("01|ses-02",), "line 2"),
        ("subject|exclude", ("01|1",), "participant_id"),
        ("participant_id,exclude", ("01,1",), "separated"),
        ("#participant_id|exclude", ("01|1",), "participant_id"),
        ("age|sex", ("3|F",), "participant_id"),
    ],
)
def test_a_table_that_does_not_say_who_is_left_out_is_refused(header, rows, part, tmp_path) -> None:
    participants(tmp_path, header, *rows)
    _, texts = read_all(tmp_path)
    assert any(text.startswith("E ") and part in text for text in texts), texts


def test_a_cell_of_participants_may_name_runs(tmp_path) -> None:
    lay_out(tmp_path, *(f"sub-01/ses-2/sub-01_ses-2_run-{r}_bold.nii" for r in "12"))
    rows = ("01|ses-2_run-1,ses-1", "02|ses-2", "03|ses-1+2")
    participants(tmp_path, "participant_id|exclude", *rows)
    (tmp_path / "sub-01/ses-2/sub-01_ses-2_bold.nii").unlink()
    people, texts = read_all(tmp_path)
    assert texts == []
    runs = [run.name.partition("_")[2] for person in people.listed for run in person.runs]
    assert runs == ["ses-2_run-2_bold.nii", "ses-1_bold.nii"]
    assert [person.left_out for person in people.people] == ["", "", "participants.tsv, line 4"]


def test_a_run_of_a_manifest_is_left_out_by_its_row_alone(tmp_path) -> None:
    manifest(tmp_path, "participant_id|exclude|run", "01|0|1", "02|1|1")
    text = (tmp_path / "manifest.csv").read_text()
    (tmp_path / "manifest.csv").write_text(text + "01,1,2,x.nii\n")
    lay_out(tmp_path, "x.nii")
    people, texts = read_all(tmp_path)
    assert texts == []
    assert [[run.name for run in person.runs] for person in people.listed] == [["01.nii"]]


@pytest.mark.parametrize("state", [participants, manifest, volumes])
def test_it_is_always_said_who_is_left_out_by_which_lines(state, tmp_path) -> None:
    rows = [f"{n:02d}|{int(n in (3, 8, 30))}" for n in range(1, 41)]
    if state is participants:
        lay_out(tmp_path, *(f"sub-{n:02d}/sub-{n:02d}_ses-1_bold.nii" for n in range(4, 41)))
    state(tmp_path, "participant_id|exclude", *rows)
    people, texts = read_all(tmp_path, KINDS[state])
    assert not any(text.startswith("E ") for text in texts), texts
    (name,) = (p.name for p in tmp_path.iterdir() if p.suffix in (".csv", ".tsv"))
    assert people.said == (f"3 of 40 people are left out: {name}, lines 4, 9, 31",)
    state(tmp_path, "participant_id|age", *rows)
    people, _ = read_all(tmp_path, KINDS[state])
    assert people.said == ("nobody is left out: no column `exclude`",)


@pytest.mark.parametrize(
    ("state", "below", "lists", "listing", "stay"),
    [
        # What is read cannot be talked away
        (participants, "", {"site-policy.toml": 'not_exclusions = ["exclude"]'}, {}, "02 03"),
        (participants, "", {"phenotype/iq.tsv": "participant_id\texclude\n02\t0\n"}, {}, "02 03"),
        (participants, "", {"phenotype/iq.tsv": "participant_id\texclude\n02\t1\n"}, {}, "03"),
        # A study's list stands in its first folder, its images in derivatives/
        (participants, "derivatives/fmriprep",
         {"participants.tsv": "participant_id\texclude\nsub-02\t1\n"}, {}, "03"),
        # Whatever an engine maps
        (participants, "", {}, {"data": "**/*.nii"}, "02 03"),
        (participants, "", {}, {"bids": "."}, "02 03"),
        (records, "", {"participants.tsv": "participant_id\texclude\nsub-02\t1\n"}, {}, "03"),
    ],
)  # fmt: skip
def test_every_list_leaves_out(state, below, lists, listing, stay, tmp_path) -> None:
    (tmp_path / below).mkdir(parents=True, exist_ok=True)
    state(tmp_path / below, "participant_id|exclude", "01|1", "02|0", "03|0")
    for name, text in lists.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    people, texts = read_all(tmp_path, KINDS[state], listing)
    assert not any(text.startswith("E ") for text in texts), texts
    assert " ".join(person.label.removeprefix("sub-") for person in people.listed) == stay


BROKEN = {
    "a cell too many": b"sub-02\t0\t5\tmore\n",
    "a cell too few": b"sub-02\n",
    "another encoding": "sub-02\t0\tJos\u00e9\n".encode("latin-1"),
    "longer than a bound": b"sub-02\t0\t" + b"x" * 2_000_000 + b"\n",
}


@pytest.mark.parametrize("row", BROKEN.values(), ids=BROKEN)
def test_a_row_that_cannot_be_read_is_told_with_its_line_and_its_person_stays(row, tmp_path):
    """One ragged row stopped every run of the site."""
    participants(tmp_path, "participant_id|exclude|name")
    header = b"participant_id\texclude\tname\n"
    (tmp_path / "participants.tsv").write_bytes(
        header + b"sub-01\t1\ta\n" + row + b"sub-03\t0\tc\n"
    )
    people, texts = read_all(tmp_path)
    assert [person.label for person in people.listed] == ["sub-02", "sub-03"]
    assert [text[0] for text in texts] == ["W"]
    assert "participants.tsv, line 3" in texts[0]
    # It was told as another number of cells.
    assert ("is not UTF-8, perhaps Latin-1" in texts[0]) == (b"\xe9" in row)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        "participant_id\texclude\nsub-01\t1\n".encode("utf-16"),
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        b"/annex/objects/MD5E-s12--ab.tsv\n",
    ],
)
def test_a_list_that_is_no_table_is_refused(content, tmp_path) -> None:
    participants(tmp_path, "participant_id")
    (tmp_path / "participants.tsv").write_bytes(content)
    assert read(tmp_path) is None


def test_a_list_that_is_not_here_is_no_list_that_says_nothing(tmp_path) -> None:
    """A DataLad clone without its content let everybody in."""
    path = participants(tmp_path, "participant_id") / "participants.tsv"
    for make in (
        lambda: path.symlink_to(".git/annex/objects/aa/key"),
        path.mkdir,
        lambda: path.symlink_to("participants.tsv"),
    ):
        path.rmdir() if path.is_dir() else path.unlink()
        make()
        assert read(tmp_path) is None


SECOND = (
    *("participants.csv", "Participants.tsv", "participants (1).tsv", "exclude.txt"),
    *("excluded_subjects.csv", "exclusions.xlsx", "withdrawn.tsv", "manifest.txt"),
)
NO_LISTS = ("participants.json", "README", "notes.txt", "._participants.tsv", "~$exclude.xlsx")


@pytest.mark.parametrize("name", SECOND + NO_LISTS)
def test_a_second_list_beside_the_first_is_refused(name, tmp_path) -> None:
    participants(tmp_path, "participant_id|exclude", "01|1")
    (tmp_path / name).write_bytes(b"sub-02\n")
    assert (read(tmp_path) is None) == (name in SECOND)
    (tmp_path / "site-policy.toml").write_text(f'not_exclusions = ["{name}"]\n')
    assert len(read(tmp_path) or ()) == 2


def test_who_is_marked_and_not_here_is_said_and_stops_nobody(tmp_path) -> None:
    participants(tmp_path, "participant_id|exclude", "01|0", "77|1")
    people, texts = read_all(tmp_path)
    assert [text[0] for text in texts] == ["W"]
    assert "participants.tsv, line 3: '77'" in texts[0]
    assert len(people.listed) == 3


def test_versions_of_who_is_left_out_stop_nobody(tmp_path) -> None:
    spaces = ("T1w", "MNI152NLin6Asym")
    lay_out(tmp_path, *(f"sub-04/sub-04_space-{space}_bold.nii" for space in spaces))
    participants(tmp_path, "participant_id|exclude", "04|0")
    assert "W" in {text[0] for text in read_all(tmp_path)[1]}
    participants(tmp_path, "participant_id|exclude", "04|1")
    assert len(read(tmp_path, replace(IMAGES, bids_filter="")) or ()) == 3
