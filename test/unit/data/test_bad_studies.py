"""Bad inputs of real studies, a table: each is read right, or refused with what to do about it.

Three people of a few voxels; one thing is wrong with the first of them or with the mask.
Asserted of every case: what becomes of the first person, that nobody else is touched, that headers
alone tell no other faults, that no file changed, that no text is a traceback or the words of a
library, that a refusal says what to do, and that what others may read names nobody.
"right": the very data of the untouched study.  "X110": this person fails with finding 110.
"E138": the site stops.  "gone": the person is not listed, and that is told.

Belongs to `cape/data/pipeline.py`.
"""

import bz2
import gzip
import lzma
import os
import re
import shutil
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.data.data_store import DataStore
from cape.data.issues import Finding, IssueCode
from cape.data.pipeline import inspect_site, load_site
from cape.errors import CATALOGUE, DataError
from cape.settings.config import Config

SHAPE, T = (5, 5, 4), 40
AFFINE = np.array([[8.0, 0, 0, -16], [0, 8, 0, -20], [0, 0, 8, 5], [0, 0, 0, 1]])
FIRST = "sub-01_task-rest_bold.nii"
IMAGES = replace(
    Config(epsilon=1.0, delta=1e-5),
    mask="file",
    min_timepoints=10,
    standardize="demean",
    bids_filter="",
)
TABLES = replace(IMAGES, confounds="trans_x,rot_z")
MATRICES = replace(
    Config(epsilon=1.0, delta=1e-5),
    feature_space="matrix",
    orientation="time_by_feature",
    n_features=6,
    min_timepoints=10,
    standardize="demean",
)
# Words of libraries, and of Python, that say nothing to who has the data.
FOREIGN = re.compile(
    r"numpy|ndarray|dtype|nibabel|Traceback|could not convert|invalid literal|<class|object at 0x"
    r"|broadcast|NoneType|HeaderDataError|zlib|Errno|codec|loadtxt|<U\d|\bint\(\)|\bfloat\(\)"
    r"|datetime64|complex\d|not subscriptable|out of bounds|Error\b|pandas|\bnp\.|\bb['\"]"
)

Damage = Callable[[Path], object]
Case = tuple[str, Damage, str]


def person(m: int) -> np.ndarray:
    rng = np.random.default_rng([m, 3])
    return (1000 + 40 * rng.standard_normal((*SHAPE, T))).astype(np.float32)


def image(m: int = 1, **codes: int) -> nib.Nifti1Image:
    made = nib.Nifti1Image(person(m), AFFINE)
    made.set_sform(AFFINE, code=codes.get("sform", 4))
    made.set_qform(AFFINE if codes.get("qform") else None, code=codes.get("qform", 0))
    made.header.set_zooms((8, 8, 8, 2.0))
    made.header.set_xyzt_units("mm", "sec")
    return made


def images(folder: Path) -> Path:
    """Write the untouched study; return the first person's image."""
    folder.mkdir()
    mask = np.zeros(SHAPE, np.uint8)
    mask[1:4, 1:4, 1:3] = 1
    nib.save(nib.Nifti1Image(mask, AFFINE), folder / "mask.nii.gz")
    for m in (1, 2, 3):
        (folder / f"sub-0{m}_task-rest_bold.nii").write_bytes(image(m).to_bytes())
    return folder / FIRST


def with_tables(folder: Path) -> Path:
    """As `images`, with a table of confounds beside each; return that of the first person."""
    images(folder)
    for m in (1, 2, 3):
        rng = np.random.default_rng([m, 4])
        rows = [f"{x:.6f}\t{y:.6f}\t{z:.6f}" for x, y, z in rng.standard_normal((T, 3))]
        text = "\n".join(["trans_x\trot_z\tcsf", *rows]) + "\n"
        (folder / f"sub-0{m}_task-rest_desc-confounds_timeseries.tsv").write_text(text)
    return folder / "sub-01_task-rest_desc-confounds_timeseries.tsv"


REGIONS = "Precentral_L,Precentral_R,Frontal_L,Frontal_R,Insula_L,Insula_R".split(",")


def series(m: int) -> np.ndarray:
    return np.random.default_rng([m, 5]).standard_normal((T, 6)).round(6)


def csv_text(values: np.ndarray, names: list[str] | None = None, sign: str = ",") -> str:
    rows = [sign.join(f"{x:.6f}" for x in row) for row in values]
    return "\n".join([sign.join(names or REGIONS), *rows]) + "\n"


def matrices(folder: Path) -> Path:
    folder.mkdir()
    for m in (1, 2, 3):
        (folder / f"sub-0{m}_timeseries.csv").write_text(csv_text(series(m)))
    return folder / "sub-01_timeseries.csv"


# ------------------------------------------------------------------------------- ways to break


def edit(**fields: object) -> Damage:
    """Write fields of the header as they are, however wrong."""

    def damage(path: Path) -> None:
        content = path.read_bytes()
        header = np.frombuffer(content[:348], nib.Nifti1Header.template_dtype).copy()
        for name, value in fields.items():
            part, _, index = name.partition("__")
            if index:
                header[part][0][int(index)] = value
            else:
                header[part] = value
        path.write_bytes(header.tobytes() + content[348:])

    return damage


def content(change: Callable[[bytes], bytes], name: str = "") -> Damage:
    def damage(path: Path) -> None:
        old = path.read_bytes()
        path.unlink()
        path.with_name(name or path.name).write_bytes(change(old))

    return damage


def voxels(change: Callable[[np.ndarray], np.ndarray], dtype: object = np.float32) -> Damage:
    def damage(path: Path) -> None:
        made = nib.Nifti1Image(change(person(1)).astype(dtype), AFFINE, dtype=dtype)
        made.set_sform(AFFINE, code=4)
        path.write_bytes(made.to_bytes())

    return damage


def put(where: object, value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(values: np.ndarray) -> np.ndarray:
        values[where] = value
        return values

    return change


def beside(name: str, text: str | bytes) -> Damage:
    def damage(path: Path) -> None:
        path.with_name(name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return damage


def renamed(name: str) -> Damage:
    return lambda path: path.rename(path.with_name(name))


def replaced(make: Damage) -> Damage:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def packed(path: Path) -> bytes:
    with zipfile.ZipFile(path.with_suffix(".zip"), "w") as archive:
        archive.writestr("a", b"b")
    made = path.with_suffix(".zip").read_bytes()
    path.with_suffix(".zip").unlink()
    return made


def zipped(old: bytes) -> bytes:
    return gzip.compress(old, 1)


def reversed_bytes(path: Path) -> None:
    made = image()
    swapped = nib.Nifti1Image(
        person(1).astype(">f4"), AFFINE, header=made.header.as_byteswapped(">")
    )
    path.write_bytes(swapped.to_bytes())


def long_rotation(path: Path) -> None:
    """A qform alone, whose rotation is longer than 1 by rounding."""
    path.write_bytes(image(qform=4).as_reoriented(np.array([[0, 1], [1, -1], [2, -1]])).to_bytes())
    edit(sform_code=0, qform_code=4, quatern_b=1.0000005, quatern_c=0, quatern_d=0)(path)


def scaled_mask(path: Path) -> None:
    """1 stored as 255 with a scale of 1/255, which is read as 1.00000006."""
    made = nib.Nifti1Image(np.asarray(nib.load(path).dataobj).astype(np.uint8) * 255, AFFINE)
    made.header.set_slope_inter(1 / 255, 0)
    nib.save(made, path)


no_rotation = edit(sform_code=0, qform_code=1, quatern_b=9)


def turned(path: Path) -> None:
    path.write_bytes(image().as_reoriented(np.array([[1, -1], [2, 1], [0, 1]])).to_bytes())


def scaled(slope: float, inter: float, dtype: object = np.int16) -> Damage:
    def damage(path: Path) -> None:
        stored = np.clip(np.rint((person(1) - inter) / slope), -32000, 32000).astype(dtype)
        made = nib.Nifti1Image(stored, AFFINE)
        made.set_sform(AFFINE, code=4)
        path.write_bytes(made.to_bytes())
        edit(scl_slope=slope, scl_inter=inter)(path)

    return damage


def lines(change: Callable[[list[str]], list[str]], encoding: str = "utf-8") -> Damage:
    def damage(path: Path) -> None:
        text = "\n".join(change(path.read_text().splitlines())) + "\n"
        path.write_bytes(text.encode(encoding))

    return damage


def swapped(old: str, new: str) -> Damage:
    return lambda path: path.write_text(path.read_text().replace(old, new))


def cell(line: int, column: int, value: str) -> Damage:
    def change(rows: list[str]) -> list[str]:
        cells = rows[line].split("\t")
        cells[column] = value
        rows[line] = "\t".join(cells)
        return rows

    return lines(change)


def mask(change: Callable[[np.ndarray], np.ndarray], affine: np.ndarray = AFFINE, **codes: int):
    def damage(path: Path) -> None:
        values = np.zeros(SHAPE, np.float32)
        values[1:4, 1:4, 1:3] = 1
        made = nib.Nifti1Image(change(values), affine)
        if codes:
            made.set_sform(None, code=0)
            made.set_qform(None, code=0)
        nib.save(made, path.with_name("mask.nii.gz"))

    return damage


def _flat(path: Path) -> bytes:
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    edit(srow_x=0, srow_y=0, srow_z=0)(path.with_suffix(""))
    made = path.with_suffix("").read_bytes()
    path.with_suffix("").unlink()
    return made


def mask_file(make: Damage) -> Damage:
    return lambda path: make(path.with_name("mask.nii.gz"))


# ------------------------------------------------------------------------------- the table

ROWS = (f"a/{FIRST},01", f"b/{FIRST},01", *(f"{FIRST.replace('01', m)},{m}" for m in ("02", "03")))
TWO_FOR_ONE = "\n".join(("file,participant_id", *ROWS, ""))
NAN, INF = float("nan"), float("inf")
HEADERS: list[Case] = [
    ("the size of the header is 0", edit(sizeof_hdr=0), "X109"),
    ("the size of the header is 347", edit(sizeof_hdr=347), "X109"),
    ("no number of axes", edit(dim__0=0), "X109 X112"),
    ("eight axes", edit(dim__0=8), "X109"),
    ("a negative number of axes", edit(dim__0=-1), "X109"),
    ("three axes", edit(dim__0=3), "X112"),
    ("an axis of length 0", edit(dim__1=0), "X112"),
    ("an axis of negative length", edit(dim__2=-5), "X109 X112"),
    ("no time", edit(dim__4=0), "X112"),
    ("one volume", edit(dim__4=1), "X129"),
    ("more volumes than there are", edit(dim__4=41), "X111"),
    ("more volumes than a file can hold", edit(dim__4=32767), "X111"),
    ("fewer volumes than there are", edit(dim__4=39), "other"),
    ("five axes, the last of length 1", edit(dim__0=5, dim__5=1), "right"),
    ("time as the fifth axis", edit(dim__0=5, dim__4=1, dim__5=T), "right"),
    ("a fifth axis of two", edit(dim__0=5, dim__4=20, dim__5=2), "X113"),
    ("no type", edit(datatype=0), "X114"),
    ("a type that nobody knows", edit(datatype=4321), "X109"),
    ("another type of as many bytes", edit(datatype=8), "other X125"),
    ("a wrong number of bits", edit(bitpix=8), "right"),
    ("voxels without a size", edit(pixdim__1=0), "right"),
    ("voxels of a size that is not a number", edit(pixdim__1=NAN), "right"),
    ("a place that is not a number", edit(srow_x__3=NAN), "X115"),
    ("a place at infinity", edit(srow_y__3=INF), "X115"),
    ("a place of no extent", edit(srow_x=0, srow_y=0, srow_z=0), "X115"),
    ("no place", edit(sform_code=0), "X115"),
    (
        "no sform, and a qform that is not a number",
        edit(sform_code=0, qform_code=1, quatern_b=NAN),
        "X115",
    ),
    ("a place 3 mm away", edit(srow_x__3=-13), "X117 X119"),
    ("in the scanner's space, elsewhere", edit(sform_code=1, srow_x__3=-13), "X121"),
    ("left and right disagree", edit(qform_code=1, pixdim__0=-1, quatern_d=1), "X116 right"),
    ("no magic word", edit(magic=b""), "X109"),
    ("another magic word", edit(magic=b"xyz"), "X109"),
    ("the magic word of a pair", edit(magic=b"ni1"), "X109"),
    ("bytes in the other order", reversed_bytes, "right"),
    ("no sform, and a qform that no rotation has", no_rotation, "X115"),
    ("no sform, and a rotation longer than 1 by rounding", long_rotation, "right"),
    ("axes in another order", turned, "right"),
    ("a scale that is not a number", edit(scl_slope=NAN), "X109 right"),
    ("a scale of infinity", edit(scl_slope=INF), "X109"),
    ("a scale of 0", edit(scl_slope=0), "right"),
    ("a scale of 2", edit(scl_slope=2, scl_inter=5), "right"),
    ("a negative scale", edit(scl_slope=-2), "right"),
    ("an offset that is not a number", edit(scl_slope=1, scl_inter=NAN), "X109"),
    ("an offset at infinity", edit(scl_slope=1, scl_inter=INF), "X109"),
    ("a scale that no number holds", edit(scl_slope=1e36), "X125"),
    ("voxels at byte 0", edit(vox_offset=0), "right"),
    ("voxels at byte 100", edit(vox_offset=100), "X109"),
    ("voxels before the file", edit(vox_offset=-9), "X109 X111"),
    ("voxels behind the file", edit(vox_offset=1e9), "X111"),
    ("voxels at no number", edit(vox_offset=NAN), "X109"),
    ("an intent of CIFTI", edit(intent_code=3006), "X163"),
    ("an intent of labels", edit(intent_code=1002), "X114"),
    ("units that nobody knows", edit(xyzt_units=255), "right"),
    ("a description in another alphabet", edit(descrip="é".encode("latin-1")), "right"),
]
FILES: list[Case] = [
    ("no bytes", content(lambda old: b""), "X107"),
    ("one byte", content(lambda old: old[:1]), "X109"),
    ("a header and nothing", content(lambda old: old[:352]), "X111"),
    ("half a header", content(lambda old: old[:170]), "X109 X111"),
    ("half of it", content(lambda old: old[: len(old) // 2]), "X111"),
    ("a byte too few", content(lambda old: old[:-1]), "X111"),
    ("bytes too many", content(lambda old: old + bytes(99)), "right"),
    ("packed", content(zipped, f"{FIRST}.gz"), "right"),
    ("packed, cut off", content(lambda old: zipped(old)[:-2000], f"{FIRST}.gz"), "X110 X111"),
    ("packed, without its end", content(lambda old: zipped(old)[:-8], f"{FIRST}.gz"), "X110"),
    ("packed twice", content(lambda old: zipped(zipped(old)), f"{FIRST}.gz"), "X109"),
    ("packed and called unpacked", content(zipped), "X109"),
    ("unpacked and called packed", renamed(f"{FIRST}.gz"), "X109"),
    ("a zip", lambda path: path.write_bytes(packed(path)), "X109"),
    ("packed by bzip2", content(bz2.compress, f"{FIRST}.gz"), "X109"),
    ("packed by xz", content(lzma.compress, f"{FIRST}.gz"), "X109"),
    ("packed by bzip2, and called so", content(bz2.compress, f"{FIRST}.bz2"), "gone"),
    ("a page of a web server", content(lambda old: b"<html>404</html>" * 40), "X109"),
    ("DICOM", content(lambda old: bytes(128) + b"DICM" + bytes(999)), "X109"),
    ("a picture", content(lambda old: b"\x89PNG\r\n\x1a\n" + bytes(999)), "X109"),
    (
        "a pointer of git-lfs",
        content(lambda old: b"version https://git-lfs.github.com/spec/v1\n"),
        "X108",
    ),
    ("a pointer of git-annex", content(lambda old: b"/annex/objects/MD5E-s9--1.nii\n"), "X108"),
    ("MINC", content(lambda old: b"\x89HDF\r\n\x1a\n" + bytes(999)), "X109"),
    ("ANALYZE", content(lambda old: old[:344] + bytes(8) + old[352:]), "X109"),
    (
        "a link to a file that is not fetched",
        replaced(lambda p: p.symlink_to(".git/annex/objects/aa/bb/key")),
        "E108",
    ),
    ("a link to a file that is gone", replaced(lambda p: p.symlink_to("gone.nii")), "E101"),
    ("a link to itself", replaced(lambda p: p.symlink_to(p.name)), "E101"),
    ("a link to another place", replaced(lambda p: p.symlink_to("/etc/hostname")), "E102"),
    (
        "a link to another person",
        replaced(lambda p: p.symlink_to("sub-02_task-rest_bold.nii")),
        "E105",
    ),
    (
        "a hard link to another person",
        replaced(lambda p: os.link(p.with_name("sub-02_task-rest_bold.nii"), p)),
        "E105",
    ),
    (
        "a copy of another person",
        lambda p: shutil.copy(p.with_name("sub-02_task-rest_bold.nii"), p),
        "twice",
    ),
    ("a folder", replaced(Path.mkdir), "E103"),
    ("a pipe", replaced(os.mkfifo), "E103"),
    (
        "packed and unpacked",
        lambda p: p.with_name(f"{p.name}.gz").write_bytes(zipped(p.read_bytes())),
        "X???",
    ),
    ("a name in capitals", renamed("sub-01_task-rest_bold.NII"), "right"),
    ("a Mac's file beside it", beside(f"._{FIRST}", b"\0\5\26\7"), "right"),
    ("a file that is still being copied", beside(f"{FIRST}.part", b"x"), "right"),
    ("a folder called like a study", lambda p: p.with_name("derivatives").mkdir(), "right"),
    ("a name of a surface", renamed("sub-01_bold.dtseries.nii"), "E163"),
    ("one file for two rows", beside("manifest.csv", TWO_FOR_ONE), "E162"),
    ("a pair without its header", renamed("sub-01_task-rest_bold.img"), "X109"),
]
VOXELS: list[Case] = [
    ("one NaN", voxels(put((2, 2, 1, 5), NAN)), "other X125"),
    ("a volume of NaN", voxels(put((..., 5), NAN)), "X125"),
    ("NaN everywhere", voxels(put(..., NAN)), "X125"),
    ("a volume at infinity", voxels(put((..., 5), INF)), "X125"),
    ("NaN outside the brain", voxels(put((0, 0, 0), NAN)), "right"),
    ("zero everywhere", voxels(put(..., 0)), "X127"),
    ("one number everywhere", voxels(put(..., 7)), "X127"),
    ("half of the brain without signal", voxels(put((slice(0, 3),), 0)), "X128"),
    ("no change in half of the brain", voxels(put((slice(0, 3),), 9)), "X126"),
    ("a voxel of 1e38", voxels(put((2, 2, 1, 5), 1e38)), "other"),
    ("doubles", voxels(lambda x: x, np.float64), "right"),
    ("doubles past single precision", voxels(lambda x: x * 1e300, np.float64), "X125"),
    ("integers of two bytes", voxels(np.rint, np.int16), "near"),
    ("integers of four bytes", voxels(lambda x: np.rint(1000 * x), np.int32), "near"),
    ("unsigned integers", voxels(lambda x: np.rint(10 * x), np.uint16), "near"),
    ("scaled integers", scaled(0.05, 900.0), "near"),
    ("integers of one byte", voxels(lambda x: np.clip(x / 8, 0, 255), np.uint8), "other"),
    ("complex numbers", voxels(lambda x: x + 1j, np.complex64), "X114"),
    ("a mean of 1e9", voxels(lambda x: x + 1e9), "X127 X126"),
    (
        "a first volume that is twice as bright",
        voxels(lambda x: x * (1 + np.eye(1, T)[0])),
        "other",
    ),
]
MASKS: list[Case] = [
    ("no mask", mask_file(Path.unlink), "E101"),
    ("an empty mask", mask(lambda m: 0 * m), "E123"),
    ("a mask of everything", mask(lambda m: 0 * m + 1), "other"),
    ("a mask of NaN", mask(lambda m: m * NAN), "E122"),
    ("a mask with NaN around it", mask(lambda m: np.where(m > 0, 1, NAN)), "E122"),
    ("a mask of labels", mask(lambda m: 3 * m), "E122"),
    ("a negative mask", mask(lambda m: -m), "E122"),
    ("a mask of whole numbers with a scale", mask_file(scaled_mask), "right"),
    ("a mask of probabilities", mask(lambda m: 0.9 * m), "right"),
    ("a mask with a fourth axis of 1", mask(lambda m: m[..., None]), "right"),
    ("a mask of two volumes", mask(lambda m: np.stack([m, m], 3)), "E122"),
    ("a mask of no voxel", mask(lambda m: m[:0]), "E122"),
    ("a mask of one slice", mask(lambda m: m[:, :, 1]), "E122"),
    ("a mask without a place", mask(lambda m: m, none=1), "E115"),
    ("a mask of no extent", mask_file(lambda p: p.write_bytes(gzip.compress(_flat(p)))), "E115"),
    ("a mask that is text", mask_file(lambda p: p.write_text("mask")), "E109"),
    ("a mask of no bytes", mask_file(lambda p: p.write_bytes(b"")), "E107"),
    ("a mask cut off", mask_file(lambda p: p.write_bytes(p.read_bytes()[:90])), "E122"),
    (
        "a mask not fetched",
        mask_file(lambda p: p.write_text("/annex/objects/MD5E-s1--1.nii.gz\n")),
        "E108",
    ),
]
CONFOUNDS: list[Case] = [
    ("a byte order mark", content(lambda old: b"\xef\xbb\xbf" + old), "right"),
    ("lines of Windows", content(lambda old: old.replace(b"\n", b"\r\n")), "right"),
    ("lines of an old Mac", content(lambda old: old.replace(b"\n", b"\r")), "right"),
    ("blanks around cells", content(lambda old: old.replace(b"\t", b" \t ")), "right"),
    ("no line at its end", content(lambda old: old.rstrip()), "right"),
    ("blank lines at its end", content(lambda old: old + b"\n\n \n"), "right"),
    ("n/a in the first row of a column", cell(1, 2, "n/a"), "right"),
    ("numbers with an exponent", cell(3, 2, "1e-3"), "right"),
    ("UTF-16", lines(lambda rows: rows, "utf-16"), "X138"),
    ("Latin-1", lines(lambda rows: [rows[0] + "é", *rows[1:]], "latin-1"), "X138"),
    ("no bytes", content(lambda old: b""), "X138"),
    ("a header alone", lines(lambda rows: rows[:1]), "X136"),
    ("no header", lines(lambda rows: rows[1:]), "X137"),
    ("a row too few", lines(lambda rows: rows[:-1]), "X136"),
    ("a row too many", lines(lambda rows: [*rows, rows[-1]]), "X136"),
    ("a blank line for a row", lines(lambda rows: [*rows[:5], "", *rows[6:]]), "X136"),
    ("a column is missing", swapped("rot_z", "rot_y"), "X137"),
    ("a column in capitals", swapped("rot_z", "ROT_Z"), "X137"),
    ("a column twice", swapped("csf", "rot_z"), "X137"),
    ("commas", swapped("\t", ","), "X138"),
    ("semicolons", swapped("\t", ";"), "X138"),
    ("blanks", swapped("\t", " "), "X137 X138"),
    ("decimal commas", swapped(".", ","), "X137"),
    ("an empty cell", cell(7, 1, ""), "X137"),
    ("n/a in the middle", cell(7, 1, "n/a"), "X137"),
    ("a word", cell(7, 1, "bad"), "X137"),
    ("infinity", cell(7, 1, "inf"), "X137"),
    ("a number of Python", cell(7, 1, "1_0"), "X137"),
    ("a number of another alphabet", cell(7, 1, "\u0661"), "X137"),
    ("a row too short", lines(lambda rows: [*rows[:5], rows[5][:9], *rows[6:]]), "X138"),
    ("a row too long", lines(lambda rows: [*rows[:5], rows[5] + "\t1", *rows[6:]]), "X138"),
    ("a web page", content(lambda old: b"<html>404</html>"), "X137 X138"),
    (
        "a link that is not fetched",
        replaced(lambda p: p.symlink_to(".git/annex/objects/a")),
        "E108",
    ),
    ("it is gone", Path.unlink, "X137"),
    ("a folder", replaced(Path.mkdir), "E103 X137"),
]
SIDECARS: list[tuple[str, str | bytes, float]] = [
    ("seconds", '{"RepetitionTime": 1.5}', 1.5),
    ("a text", '{"RepetitionTime": "1.5"}', 1.5),
    ("milliseconds", '{"RepetitionTime": 1500}', 1.5),
    ("a byte order mark", '\ufeff{"RepetitionTime": 1.5}', 1.5),
    ("UTF-16", '{"RepetitionTime": 1.5}'.encode("utf-16"), 1.5),
    ("nothing", "", 2.0),
    ("no number", '{"RepetitionTime": "fast"}', 2.0),
    ("null", '{"RepetitionTime": null}', 2.0),
    ("true", '{"RepetitionTime": true}', 2.0),
    ("not a number", '{"RepetitionTime": NaN}', 2.0),
    ("not a number, as text", '{"RepetitionTime": "nan"}', 2.0),
    ("infinity", '{"RepetitionTime": Infinity}', 2.0),
    ("a negative number", '{"RepetitionTime": -1}', 2.0),
    ("zero", '{"RepetitionTime": 0}', 2.0),
    ("a number of a thousand digits", '{"RepetitionTime": 1' + 999 * "0" + "}", 2.0),
    ("a list", '{"RepetitionTime": [1.5]}', 2.0),
    ("a list of records", '[{"RepetitionTime": 1.5}]', 2.0),
    ("a key twice", '{"RepetitionTime": 1.5, "RepetitionTime": 2.5}', 2.0),
    ("half of it", '{"RepetitionTime": 1.', 2.0),
    ("a decimal comma", '{"RepetitionTime": 1,5}', 2.0),
    ("brackets without end", "[" * 100_000, 2.0),
]
TIMES: list[tuple[str, dict[str, object], float]] = [
    ("milliseconds, said", {"pixdim__4": 2000, "xyzt_units": 2 + 16}, 2.0),
    ("microseconds, said", {"pixdim__4": 2e6, "xyzt_units": 2 + 24}, 2.0),
    ("milliseconds, unsaid", {"pixdim__4": 2000, "xyzt_units": 2}, 2.0),
    ("milliseconds, said to be seconds", {"pixdim__4": 2000, "xyzt_units": 2 + 8}, 2.0),
    ("hertz", {"pixdim__4": 0.5, "xyzt_units": 2 + 32}, 0.0),
    ("1 of no unit", {"pixdim__4": 1, "xyzt_units": 0}, 0.0),
    ("0", {"pixdim__4": 0}, 0.0),
    ("negative", {"pixdim__4": -2}, 0.0),
    ("not a number", {"pixdim__4": NAN}, 0.0),
    ("infinite", {"pixdim__4": INF}, 0.0),
]
ARRAYS: list[Case] = [
    ("a byte order mark", content(lambda old: b"\xef\xbb\xbf" + old), "right"),
    ("lines of Windows", content(lambda old: old.replace(b"\n", b"\r\n")), "right"),
    ("notes in front", content(lambda old: b"# of FSL\n" + old), "right"),
    ("blank lines", content(lambda old: old.replace(b"\n", b"\n\n")), "right"),
    ("UTF-16", content(lambda old: old.decode().encode("utf-16")), "X138"),
    ("UTF-16 without a mark", content(lambda old: old.decode().encode("utf-16-le")), "X138"),
    ("Latin-1", content(lambda old: old.replace(b"Insula", b"Ins\xfcla")), "X138"),
    ("packed", content(zipped, "sub-01_timeseries.csv.gz"), "gone"),
    ("semicolons", content(lambda old: old.replace(b",", b";")), "X138"),
    ("tabs", content(lambda old: old.replace(b",", b"\t")), "X138"),
    ("blanks", content(lambda old: old.replace(b",", b" ")), "X138"),
    ("no header", lines(lambda rows: rows[1:]), "right"),
    ("a header of labels of regions", lines(lambda rows: ["1,2,3,4,5,6", *rows[1:]]), "right"),
    ("names twice", lines(lambda rows: ["1,1.1,1.2,2,2.1,2.2", *rows[1:]]), "X138"),
    (
        "a header of whole numbers with a point",
        lines(lambda rows: ["1.,2.0,3,4,5,6", *rows[1:]]),
        "X138",
    ),
    ("a header of other numbers", lines(lambda rows: ["1,2,2,4,5,6", *rows[1:]]), "X138"),
    ("a header alone", lines(lambda rows: rows[:1]), "X138"),
    ("no bytes", content(lambda old: b""), "X107"),
    ("a word", content(lambda old: old.replace(b"\n0.", b"\nbad", 1)), "X138"),
    (
        "an empty cell",
        lambda p: p.write_text(csv_text(series(1)).replace("0.1", "", 1)),
        "X138 other",
    ),
    (
        "NaN in one cell",
        lambda p: p.write_text(
            csv_text(np.where(np.arange(240).reshape(T, 6) == 77, NAN, series(1)))
        ),
        "X125",
    ),
    ("a row too short", lines(lambda rows: [*rows[:5], rows[5][:20], *rows[6:]]), "X138"),
    ("a row too long", lines(lambda rows: [*rows[:5], rows[5] + ",1", *rows[6:]]), "X138"),
    ("a cell more", lines(lambda rows: [rows[0], *(f"{row},1" for row in rows[1:])]), "X138"),
    ("commas at the ends of lines", lines(lambda rows: [row + "," for row in rows]), "X138"),
    (
        "the numbers of rows that pandas writes",
        lines(lambda rows: ["," + rows[0], *(f"{i},{row}" for i, row in enumerate(rows[1:]))]),
        "right",
    ),
    ("a region twice", swapped("Insula_R", "Insula_L"), "X138"),
    ("a region without a name", swapped("Insula_R", ""), "X138"),
    ("a region less", lambda p: p.write_text(csv_text(series(1)[:, :5], REGIONS[:5])), "X144"),
    (
        "features in rows",
        lambda p: p.write_text(csv_text(series(1).T, [f"t{i}" for i in range(T)])),
        "X129 X143",
    ),
    ("too few rows", lines(lambda rows: rows[:9]), "X129"),
    ("a .npy", lambda p: (p.unlink(), np.save(p.with_suffix(".npy"), series(1))), "right"),
    (
        "a .npy of objects",
        lambda p: (p.unlink(), np.save(p.with_suffix(".npy"), series(1).astype(object))),
        "X140",
    ),
    (
        "a .npz without X",
        lambda p: (p.unlink(), np.savez(p.with_suffix(".npz"), Y=series(1), Z=series(2))),
        "X142",
    ),
    ("a pickle", content(lambda old: b"\x80\x04\x95" + bytes(99), "sub-01_timeseries.npy"), "X140"),
    (
        "a .mat of version 4",
        content(
            lambda old: struct.pack("<5i", 0, 6, T, 0, 2) + b"X\0" + series(1).tobytes(),
            "sub-01_timeseries.mat",
        ),
        "X141",
    ),
    ("a table called .mat", renamed("sub-01_timeseries.mat"), "X109"),
    ("a spreadsheet", content(lambda old: b"PK\x03\x04" + bytes(99)), "X109"),
]

GROUPS = {
    "header": (images, IMAGES, HEADERS),
    "file": (images, IMAGES, FILES),
    "voxels": (images, IMAGES, VOXELS),
    "mask": (images, IMAGES, MASKS),
    "confounds": (with_tables, TABLES, CONFOUNDS),
    "array": (matrices, MATRICES, ARRAYS),
}
CASES = [
    pytest.param(group, damage, wanted, id=f"{group}: {name}")
    for group, (_, _, cases) in GROUPS.items()
    for name, damage, wanted in cases
]


def outcome(
    folder: Path, config: Config, store: DataStore | None = None
) -> tuple[str, dict[str, np.ndarray], tuple[Finding, ...]]:
    """Return what became of the first person, everybody's array, and what was found."""
    try:
        data, reduced = load_site(folder, {}, config, site="B", store=store)
    except DataError as err:
        found = inspect_site(folder, {}, config, site="B")
        return f"E{err.detail[6:9]}", {}, found.findings
    arrays = dict(reduced)
    first = next((label for label in data.listed if label.removeprefix("sub-") in ("01", "1")), "")
    failed = sorted({f.code[6:] for f in data.findings if f.severity in "XS"})
    if first in data.failed:
        return f"X{failed[0] if failed else '???'}", arrays, data.findings
    return ("here" if first else "left"), arrays, data.findings


def same(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    return a.shape == b.shape and min(np.abs(a - b).max(), np.abs(a + b).max()) < tolerance


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, dict[str, np.ndarray]]:
    made = {}
    for group, (make, config, _) in GROUPS.items():
        folder = tmp_path_factory.mktemp("whole") / "site"
        make(folder)
        made[group] = outcome(folder, config)[1]
        assert len(made[group]) == 3
    return made


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("group", "damage", "wanted"), CASES)
def test_a_bad_input_is_read_right_or_refused_with_what_to_do(
    tmp_path, whole, group, damage, wanted
):
    make, config, _ = GROUPS[group]
    site = tmp_path / "site"
    damage(make(site))
    before = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    got, arrays, findings = outcome(site, config)
    quick = inspect_site(site, {}, config, site="B", headers_only=True).findings
    assert {found.code[6:] for found in quick} <= {found.code[6:] for found in findings}
    assert before == {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    texts = [finding.private for finding in findings]
    if got == "here":
        tolerance = {"near": 2e-3}.get(wanted, 1e-5)
        first = next(a for label, a in arrays.items() if label.removeprefix("sub-") in ("01", "1"))
        alike = same(first, whole[group]["sub-01"], tolerance)
        got = {"near": "near"}.get(wanted, "right") if alike else "other"
        if got == "other" and any("The same values" in text for text in texts):
            got = "told"
    if wanted == "twice":  # one of the two counts
        assert any("CAPE-W105" in text or "CAPE-E105" in text for text in texts)
    elif wanted == "gone":  # a packed table, or another one's ending, was dropped without a word
        assert got == "left"
        assert any("CAPE-W109" in text and "ends in ." in text for text in texts)
    else:
        assert got in wanted.split(), texts
    for text in texts:
        assert not FOREIGN.search(text), text
    for finding in findings:
        if finding.severity in "EXS":
            assert "Fix: " in finding.private
        for name in ("sub-", "task-rest", ".nii", ".csv", str(site)):
            assert name not in finding.public
    others = [label for label in arrays if label.removeprefix("sub-") in ("02", "03", "2", "3")]
    if group != "mask" and arrays:
        assert len(others) == 2
        for label in others:
            if wanted != "twice":
                assert same(arrays[label], whole[group][f"sub-0{label[-1]}"], 1e-6)


def test_people_without_signal_in_half_of_the_mask_are_native(tmp_path):
    first = images(tmp_path / "site")
    for m in (1, 2):
        voxels(put((slice(0, 3),), 0))(first.with_name(FIRST.replace("01", f"0{m}")))
    found = inspect_site(tmp_path / "site", {}, IMAGES, site="B")
    (native,) = (finding for finding in found.findings if finding.code == "CAPE-E121")
    assert "2 of 3 subjects" in native.private
    assert native.public.startswith("CAPE-E100 ")


@pytest.mark.parametrize(("name", "text", "seconds"), SIDECARS, ids=[case[0] for case in SIDECARS])
def test_a_sidecar_gives_seconds_or_nothing(tmp_path, name, text, seconds):
    path = images(tmp_path / "site")
    beside(path.with_suffix(".json").name, text)(path)
    found = inspect_site(tmp_path / "site", {}, IMAGES, site="B")
    first = next(subject for subject in found.subjects if subject.label == "sub-01")
    assert first.trs == (pytest.approx(seconds),)


@pytest.mark.parametrize(("name", "fields", "seconds"), TIMES, ids=[case[0] for case in TIMES])
def test_a_header_gives_seconds_or_nothing(tmp_path, name, fields, seconds):
    edit(**fields)(images(tmp_path / "site"))
    found = inspect_site(tmp_path / "site", {}, IMAGES, site="B")
    first = next(subject for subject in found.subjects if subject.label == "sub-01")
    assert first.trs == (pytest.approx(seconds, abs=1e-6),)
    assert any("CAPE-W132" in f.private for f in found.findings) == (seconds == 0)


def test_no_text_of_any_refusal_has_words_of_libraries():
    texts = [str(code.value) for code in IssueCode] + [str(text) for text in CATALOGUE.values()]
    assert len(texts) > 200
    assert [text for text in texts if FOREIGN.search(text)] == []
