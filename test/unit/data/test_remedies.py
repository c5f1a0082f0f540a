"""What a refusal says to do is done, to the letter, and the study is right then.

Each refusal of `test_bad_studies` ends with a remedy.  Here its words are carried out by a program
that reads nothing but them: the file, line or column that they name.  Of every remedy of that table
a row stands below, one function for each of its alternatives; what is not there fails.

Belongs to `cape/data/issues.py`.
"""

from __future__ import annotations

import gzip
import importlib.util
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import nibabel as nib
import numpy as np
import pytest

from cape.data.issues import Finding
from cape.settings.config import Config


def _module(name: str) -> ModuleType:
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"remedies_{name}", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


BAD = _module("test_bad_studies")
MOST_STEPS = 5
NAME = re.compile(r"[\w.-]+\.(?:nii\.gz|nii|img|csv|tsv|txt|npy|npz|mat)\b")
MANIFEST = "file,participant_id\n" + "".join(
    f"sub-0{m}_task-rest_bold.nii,{m}\n" for m in (1, 2, 3)
)


class Study:
    """A study with something wrong, what was said of it, and the study as it should be."""

    def __init__(self, folder: Path, whole: Path, group: str, said: str) -> None:
        self.folder, self.whole, self.group, self.said = folder, whole, group, said
        observed = said.partition("Fix: ")[0].partition("Expected")[0]
        names = NAME.findall(observed)
        tables = [name for name in names if name.endswith((".tsv", "mask.nii.gz"))]
        # Where a person is named, and no file: it is the only one of that person.
        theirs = sorted(path.name for path in folder.glob("sub-01*") if ".tsv" not in path.name)
        self.file = folder / (tables or names or theirs)[0]

    @property
    def table(self) -> Path:
        return next(p for p in self.folder.iterdir() if p.name.startswith("manifest."))

    def right(self, name: str) -> bytes:
        """Return the file that should be there."""
        if name.startswith("manifest"):
            return MANIFEST.replace(",", "\t" if name.endswith("tsv") else ",").encode()
        if (self.whole / name).is_file():
            return (self.whole / name).read_bytes()
        return gzip.compress((self.whole / name.removesuffix(".gz")).read_bytes())


Mend = Callable[[Study], Config | None]


def anew(study: Study) -> None:
    """Put the file there that was meant: copied, converted or fetched again."""
    path = study.file
    if path.is_dir():
        path.rmdir()
    if path.suffix in (".npy", ".npz"):
        path.unlink()
        np.save(path.with_suffix(".npy"), BAD.series(1).astype(np.float32))
        return
    if path.suffix == ".img":
        path.unlink()
        path = path.with_suffix(".nii.gz")
    elif path.suffix == ".mat":
        path.unlink()
        path = path.with_suffix(".csv")
    content = study.right(path.name)
    if path.is_symlink():
        path.unlink()
    path.write_bytes(content)


def taken_out(study: Study) -> None:
    path = study.file
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def another_name(study: Study) -> None:
    study.file.rename(study.file.with_name("kept-elsewhere"))


def rows(change: Callable[[str], str]) -> Mend:
    """Change the rows of the list that is named, else of the manifest."""

    def mend(study: Study) -> None:
        path = study.file if study.file.suffix in (".csv", ".tsv") else study.table
        header, *rest = path.read_text().splitlines()
        changed = (change(row) for row in rest if row.strip())
        path.write_text("\n".join([header, *filter(None, changed)]) + "\n")

    return mend


def line_said(change: Callable[[str], str]) -> Mend:
    """Change just the line that the refusal names."""

    def mend(study: Study) -> None:
        number = int(re.search(r"line (\d+)", study.said)[1])
        lines = study.file.read_text().splitlines()
        lines[number - 1] = change(lines[number - 1])
        study.file.write_text("\n".join(filter(None, lines)) + "\n")

    return mend


def name_corrected(study: Study) -> None:
    """Write the one name of an image that no row has where a row has none that is here."""
    names = [path.name for path in study.folder.glob("*_bold.nii")]
    if not any(study.folder.glob("manifest.*")):  # no list: it is the file that has to be there
        anew(study)
        return
    text = study.table.read_text()
    unlisted = iter([name for name in sorted(names) if name not in text.replace("\\", "/")])

    def change(row: str) -> str:
        name, comma, rest = row.partition(",")
        if name in names:
            return row
        near = next((one for one in names if name.endswith(one)), "")
        near = near or next(unlisted, "")
        return near and near + comma + rest

    rows(change)(study)


def put_there(study: Study) -> None:
    path = study.file
    if path.is_symlink() or not study.group == "manifest":
        anew(study)
        return
    for row in study.table.read_text().splitlines()[1:]:
        place = study.folder / row.partition(",")[0]
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(BAD.image(int(row.rpartition(",")[2])).to_bytes())


def moved_and_listed(study: Study) -> None:
    if study.file.is_symlink():
        anew(study)
        return
    rows(lambda row: row.partition(",")[0].rpartition("/")[2] + "," + row.partition(",")[2])(study)


def rows_added(study: Study) -> None:
    there = study.table.read_text()
    missing = [r for r in MANIFEST.splitlines()[1:] if r.partition(",")[0] not in there]
    columns = there.splitlines()[0].split(",")
    if "subject" not in columns:
        missing = [row.partition(",")[0] + "," for row in missing]
    study.table.write_text(there.rstrip("\n") + "\n" + "\n".join(missing) + "\n")


def one_of_two_removed(study: Study) -> None:
    if not any(study.folder.glob("manifest.*")):
        (study.folder / BAD.FIRST).unlink()
        return
    seen: set[str] = set()

    def change(row: str) -> str:
        name = row.partition(",")[0]
        again = name in seen
        seen.add(name)
        return "" if again else row

    rows(change)(study)


def header_first(study: Study) -> None:
    """Add a first line; of one that has other numbers it takes their place."""
    text = study.file.read_text()
    if study.file.name.startswith("manifest"):
        study.file.write_text(f"file,participant_id\n{text}")
        return
    wide = ",".join(BAD.REGIONS)
    lines = [line for line in text.splitlines() if "." in line]
    missing = BAD.csv_text(BAD.series(1)).splitlines()[1:]
    assert lines[-1] == missing[-1]
    study.file.write_text("\n".join([wide, *missing]) + "\n")


def saved_again(study: Study) -> None:
    """Save a table as a spreadsheet program would; what holds no table is written anew."""
    raw = study.file.read_bytes()
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    encoding = "utf-16-le" if encoding == "utf-8-sig" and b"\0" in raw[:40] else encoding
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        text = raw.decode("latin-1").replace("José", "1")  # as this person is called elsewhere
    sign = "\t" if study.file.suffix == ".tsv" else ","
    first = text.splitlines()[0] if text.strip() else ""
    known = ("file", "subject", "participant_id", "trans_x", "Precentral_L")
    theirs = next((s for s in ";\t, " if s in first), sign)
    if not first.startswith(known) or "PK" in first:
        anew(study)
        return
    if theirs != ",":
        text = re.sub(r"(?<=\d),(?=\d)", ".", text)
    table = [line.replace('"', "").split(theirs) for line in text.splitlines() if line.strip()]
    width = len(table[0])
    if study.group in ("confounds", "array"):  # numbers that are not there nobody can add
        whole = [len(row) == width for row in table]
        numbers = all(re.fullmatch(r"-?\d+\.\d+", c.strip()) for row in table[1:] for c in row)
        if not all(whole) or not numbers or len(table) < BAD.T:
            anew(study)
            return
    lines = [sign.join([*row, *[""] * width][:width]) for row in table]
    study.file.write_text("\n".join(lines) + "\n")


def column_of_files(study: Study) -> None:
    """Call a column `file`; of two of that name one goes."""
    text = study.file.read_text().replace("scan,", "file,")
    if text.startswith("file,file"):
        text = "".join(f"{line.partition(',')[0]}\n" for line in text.splitlines())
    study.file.write_text(text)


def column_as_said(study: Study) -> None:
    right, wrong = re.search(r"Fix: call it (\w+).*?, or notes_(\w+)", study.said).groups()
    study.file.write_text(re.sub(rf"\b{wrong}\b", right, study.file.read_text(), count=1))


def first_column_as_said(study: Study) -> None:
    name = re.search(r"Fix: .* (\w+)\.", study.said)[1]
    study.file.write_text(re.sub(r"^\w+", name, study.file.read_text(), count=1))


def column_is_a_note(study: Study) -> None:
    note = re.search(r"or (notes_(\w+)) if", study.said)
    study.file.write_text(re.sub(rf"\b{note[2]}\b", note[1], study.file.read_text(), count=1))


def line_in_policy(study: Study) -> None:
    line = re.search(r"writes (not_exclusions = .*?) into its own", study.said)[1]
    (study.folder / "site-policy.toml").write_text(f"{line}\n")


def column_removed(study: Study) -> None:
    lines = [line.partition(",")[0] for line in study.file.read_text().splitlines()]
    study.file.write_text("\n".join(lines) + "\n")


def joined(study: Study) -> None:
    """Join a list that is not read to the one that is."""
    path = study.file
    other = next((p for p in study.folder.glob(f"{path.stem}.*") if p != path), None)
    if other is None and path.stem == "participants":
        path.with_suffix(".tsv").write_text(path.read_text().replace(",", "\t"))
    elif other is None and path.stem == "manifest":
        path.with_suffix(".csv").write_text(path.read_text())
    elif path.name == "exclude.txt":
        text = "".join(f"{name}\t1\n" for name in path.read_text().split())
        path.with_name("participants.tsv").write_text(f"participant_id\texclude\n{text}")
    path.unlink()


def trusted(study: Study) -> None:
    rest = "".join(f"sub-0{m}_task-rest_bold.nii,{m},0\n" for m in (2, 3))
    text = f"file,participant_id,trust_grid\n{BAD.FIRST},1,1\n{rest}"
    (study.folder / "manifest.csv").write_text(text)


def left_out(study: Study) -> None:
    if any(study.folder.glob("manifest.csv")):
        study.table.write_text(study.table.read_text().replace("n_dummy\n", "n_dummy,exclude\n", 1))
        rows(lambda row: f"{row},{int(row.startswith(BAD.FIRST))}")(study)
        return
    text = "participant_id\texclude\nsub-01\t1\n"
    (study.folder / "participants.tsv").write_text(text)


def owner(**settings: Any) -> Mend:
    config = {"confounds": BAD.TABLES, "array": BAD.MATRICES}
    return lambda study: replace(config.get(study.group, BAD.IMAGES), **settings)


def renamed_or_anew(study: Study) -> None:
    head, name = study.file.read_bytes()[:348], study.file.name
    if head[:2] == b"\x1f\x8b" and gzip.decompress(study.file.read_bytes())[:2] == b"\\\1":
        study.file.rename(study.folder / f"{name.removesuffix('.gz')}.gz")
    elif head[:2] == b"\\\1" and name.endswith(".gz"):
        study.file.rename(study.folder / name.removesuffix(".gz"))
    elif head.startswith(b"Precentral"):
        study.file.rename(study.file.with_suffix(".csv"))
    else:
        anew(study)


def both_places_set(study: Study) -> None:
    image = nib.load(study.file)
    image = nib.Nifti1Image(np.asarray(image.dataobj), BAD.AFFINE, image.header)
    image.set_sform(BAD.AFFINE, 4)
    image.set_qform(BAD.AFFINE, 4)
    study.file.write_bytes(image.to_bytes())


def in_matlab(study: Study) -> None:
    """Do as `x = load(FILE); save(FILE, '-struct', 'x', '-v7')` does."""
    scipy_io = pytest.importorskip("scipy.io")
    found = scipy_io.loadmat(study.file)
    kept = {name: value for name, value in found.items() if not name.startswith("_")}
    scipy_io.savemat(study.file, kept, do_compression=True)


def variable_renamed(study: Study) -> None:
    with np.load(study.file) as held:
        matrix = held["Y"]
    np.savez(study.file, X=matrix)


def transposed(study: Study) -> None:
    if study.file.suffix == ".mat":
        scipy_io = pytest.importorskip("scipy.io")
        scipy_io.savemat(study.file, {"X": scipy_io.loadmat(study.file)["X"].T})
        return
    values = np.loadtxt(study.file, delimiter=",", skiprows=1).T
    study.file.write_text(BAD.csv_text(values))


def named_in_manifest(study: Study) -> None:
    end = "_task-rest_desc-confounds_timeseries.tsv"
    shutil.copy(study.whole / f"sub-01{end}", study.folder / "motion.tsv")
    table = study.folder / f"sub-01{end}"
    if table.is_symlink():
        table.unlink()
    lines = [f"sub-0{m}_task-rest_bold.nii,{m},sub-0{m}{end}" for m in (2, 3)]
    text = "\n".join(["file,participant_id,confounds", f"{BAD.FIRST},1,motion.tsv", *lines])
    (study.folder / "manifest.csv").write_text(text + "\n")


def cell_in_line(study: Study) -> None:
    def change(row: str) -> str:
        return row.replace("2,0", "2.0") if "\t" in row else row.rpartition(",")[0] + ",2.0"

    if "'n_dummy'" in study.said:
        line_said(lambda row: row.rpartition(",")[0] + ",0")(study)
    else:
        line_said(change)(study)


def filled(row: str) -> str:
    return "" if row.startswith(",") else f"{row}1"


RIGHT, LEFT, HERE = "right", "left", "right other"
# The remedy as it is printed, and what each of its alternatives leads to.
REMEDIES: list[tuple[str, list[tuple[Mend, str]]]] = [
    # asks for another file: nobody can make it of what is there
    (
        r"put it there|fetch the content first|convert it again\.|copy it again|copy it, or convert"
        r"|save it with its affine\.|copy or convert it again|copy or compress it again"
        r"|copy both, or convert it|write it again as NIfTI|join the volumes of the run"
        r"|save one 4-D series|save the magnitude|use the mask that the owner sent"
        r"|save it as 0 and 1|another MNI variant\? Use the images|use the normalised images"
        r"|run the step again|check mask and pre|check field of view|use the table that belongs"
        r"|correct the table, or ask|use the same features|re-save as a float array"
        r"|save one matrix|use the volumetric images",
        [(anew, RIGHT)],
    ),
    (r"convert or rename it", [(renamed_or_anew, RIGHT)]),
    (r"convert it again, or leave it out", [(anew, RIGHT), (left_out, LEFT)]),
    (r"add the columns, or ask", [(anew, RIGHT), (owner(confounds="none"), HERE)]),
    (r"correct the name\.", [(name_corrected, RIGHT)]),
    (r"correct the names or put the files there", [(name_corrected, RIGHT), (put_there, RIGHT)]),
    (r"move or copy the files there", [(moved_and_listed, RIGHT)]),
    (r"list its files, or a glob", [(another_name, LEFT), (name_corrected, RIGHT)]),
    (r"take it out of the folder", [(taken_out, "right left")]),
    (r"add rows", [(rows_added, "right left")]),
    (r"remove one of the two", [(one_of_two_removed, "right left")]),
    (r"name the version in bids_filter .*; keep \.nii or", [(taken_out, RIGHT)]),
    (r"save it with its affine; if", [(anew, RIGHT), (trusted, RIGHT)]),
    (r"set both to the one", [(both_places_set, RIGHT)]),
    (
        r"lower n_components or min_timepoints \(the owner\), or leave the subject out \(exclude",
        [(left_out, LEFT)],
    ),
    (r"add a first line", [(header_first, RIGHT)]),
    (
        r"correct it, or remove one of the col",
        [(rows(lambda r: r.rpartition(",")[0] + ","), RIGHT)],
    ),
    (r"fill or remove it", [(line_said(filled), RIGHT), (line_said(lambda row: ""), "right left")]),
    (r"save it again as comma-separated", [(saved_again, "right left")]),
    (r"write 1 or 0", [(line_said(lambda row: re.sub(r"motion|withdrew", "1", row)), LEFT)]),
    (r"write 2\.5, not", [(cell_in_line, RIGHT)]),
    (r"write the name as it is", [(line_said(lambda row: row.replace("-1", "-01")), LEFT)]),
    (r"write the names as they are here, or move", [(taken_out, RIGHT)]),
    (
        r"call it \w+( \(1 = left out\))?, or notes_\w+ if",
        [(column_as_said, "right left"), (column_is_a_note, RIGHT), (line_in_policy, RIGHT)],
    ),
    (r"call the column of the names", [(first_column_as_said, "right left")]),
    (r"join it to that, or move it", [(joined, "right left"), (taken_out, RIGHT)]),
    (r"name the column of the files 'file'", [(column_of_files, RIGHT)]),
    (r"remove the column", [(column_removed, RIGHT)]),
    (r"name every column once", [(anew, RIGHT)]),
    (
        r"name it in the manifest, or leave the run out \(exclude",
        [(named_in_manifest, RIGHT), (left_out, LEFT)],
    ),
    (r"in MATLAB", [(in_matlab, RIGHT)]),
    (r"save it as an array called X", [(variable_renamed, RIGHT)]),
    (r"transpose it", [(transposed, RIGHT)]),
]


def remedy_of(finding: Finding) -> str:
    return finding.private.partition("Fix: ")[2]


def alternatives(text: str) -> list[tuple[Mend, str]]:
    found = [mends for pattern, mends in REMEDIES if re.match(pattern, text)]
    assert len(found) == 1, f"{len(found)} rows say how this is carried out: {text}"
    return found[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, tuple[Path, dict[str, np.ndarray]]]:
    made = {}
    for group, (make, config, _) in BAD.GROUPS.items():
        folder = tmp_path_factory.mktemp("whole") / "site"
        make(folder)
        made[group] = folder, BAD.outcome(folder, config)[1]
    return made


def result(
    folder: Path, config: Config, arrays: dict[str, np.ndarray]
) -> tuple[str, list[Finding]]:
    """Return what became of the first person, and what is refused, of the whole site first."""
    got, found, findings = BAD.outcome(folder, config)
    if got == "here":
        first = next(a for who, a in found.items() if who.removeprefix("sub-") in ("01", "1"))
        got = "right" if BAD.same(first, arrays["sub-01"], 1e-5) else "other"
    said = [finding for finding in findings if finding.severity in "EXS"]
    return got, sorted(said, key=lambda finding: finding.code[5] != "E")


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    ("group", "damage", "wanted"), [c for c in BAD.CASES if re.search(r"[EX]\d|twice", c.values[2])]
)
def test_what_a_refusal_says_to_do_is_done_and_the_study_is_right(
    tmp_path, whole, group, damage, wanted
):
    make, config, _ = BAD.GROUPS[group]
    pristine, arrays = whole[group]
    way, ways = 0, 1
    while way < ways:
        folder, settings, ends = tmp_path / f"way{way}", config, wanted.split()
        damage(make(folder))
        for step in range(MOST_STEPS):
            got, said = result(folder, settings, arrays)
            if not said:
                break
            choices = alternatives(remedy_of(said[0]))
            ways = ways if step else len(choices)
            mend, end = choices[0 if step else way]
            ends += end.split()
            study = Study(folder, pristine, group, said[0].private)
            settings = mend(study) or settings
        assert not said, said[0].private
        assert got in ends
        way += 1
