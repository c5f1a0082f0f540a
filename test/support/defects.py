"""Break the files of a synthetic site on purpose: one function per row of the table of bad inputs.

Only the first two subjects of a site are touched, unless a row is about the whole site.
"""

from __future__ import annotations

import gzip
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cape.data.bids import confounds_beside
from cape.frozen import dataclass

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Image

# Endings of what lies beside images.
SIDE_FILES = (".json", "_timeseries.tsv")

Values = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class Defect:
    """One way to break a site.

    Attributes
    ----------
    row : int
        Row of the table of bad inputs.
    needs : {"image", "matrix", "bids", "any"}
        Files it works on.
    make : callable
        Gets the data files of the site in order.
    """

    row: int
    needs: str
    make: Callable[[list[Path]], None]


def make_defect(name: str, folder: Path, *, kind: str) -> None:
    """Break the files of one site.

    Parameters
    ----------
    name : str
        Short name, or number of the row.
    folder : Path
        Of the site; it must hold at least two subjects.
    kind : {"image", "matrix", "bids", "manifest", "table"}
        What its files are; only images and matrices in one folder have all defects.
    """
    needs = ("any", kind) if kind in ("image", "matrix") else (kind,)
    fitting = {key: d for key, d in DEFECTS.items() if d.needs in needs}
    for key, defect in fitting.items():
        if name in (key, str(defect.row)):
            files = folder.rglob("sub-*") if kind == "bids" else folder.iterdir()
            named = (p for p in files if p.is_file() and p.name.startswith("sub-"))
            defect.make(sorted(p for p in named if not p.name.endswith(SIDE_FILES)))
            return
    raise ValueError(f"no defect {name} of {kind} files; there are {', '.join(fitting)}")


# ------------------------------------------------------------------------------- files


def _manifest(files: list[Path], *more: str, header: str = "file,participant_id") -> None:
    """Write a manifest of all files and the lines `more`."""
    extra = "," * (header.count(",") - 1)
    labels = (path.name.split(".")[0].split("_")[0].removeprefix("sub-") for path in files)
    named = zip(files, labels, strict=True)
    lines = [header, *(f"{path.name},{label}{extra}" for path, label in named), *more]
    (files[0].parent / "manifest.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _folder_as_file(files: list[Path]) -> None:
    (files[0].parent / "more").mkdir()
    _manifest(files, "more,1")


def _same_names(files: list[Path]) -> None:
    _manifest(files[1:], *(f"{top}/{files[0].name},2" for top in "ab"))


def _no_files(files: list[Path]) -> None:
    for path in files:
        path.unlink()


def _duplicate(files: list[Path]) -> None:
    name = files[-1].name
    shutil.copyfile(files[0], files[0].with_name("sub-999" + name[name.index(".") :]))


def _empty(files: list[Path]) -> None:
    files[0].write_bytes(b"")


def _lfs_pointer(files: list[Path]) -> None:
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 1234567\n"
    files[0].write_text(text, encoding="ascii")


def _text(files: list[Path]) -> None:
    files[0].write_text("<html>404 not found</html>\n" * 20, encoding="ascii")


def _ragged(files: list[Path]) -> None:
    _manifest(files, "sub-998.nii.gz,998,2.0,extra", header="file,participant_id,tr")


def _decimal_comma(files: list[Path]) -> None:
    _manifest(files[1:], f'{files[0].name},1,"2,0"', header="file,participant_id,tr")


def _no_file_column(files: list[Path]) -> None:
    _manifest(files, header="scan,participant_id")


def _surface(files: list[Path]) -> None:
    files[0].rename(files[0].with_name("sub-001_bold.dtseries.nii"))


def _truncate(files: list[Path]) -> None:
    content = files[0].read_bytes()
    files[0].write_bytes(content[: len(content) // 2])


# ------------------------------------------------------------------------------- images


def _truncate_plain(files: list[Path]) -> None:
    content = gzip.decompress(files[0].read_bytes())
    files[0].unlink()
    files[0].with_suffix("").write_bytes(content[: len(content) // 2])


def _edit(
    path: Path,
    *,
    values: Callable[[Values], npt.NDArray[Any]] | None = None,
    header: Callable[[Nifti1Image], None] | None = None,
) -> None:
    """Rewrite an image as float32 (or what `values` returns) with another content or header."""
    import nibabel as nib

    loaded: Any = nib.load(path)
    array: npt.NDArray[Any] = np.asarray(loaded.dataobj, dtype=np.float32)
    if values is not None:
        array = values(array)
    image = nib.Nifti1Image(array, loaded.affine)
    image.header.set_xyzt_units("mm", "sec")
    if array.ndim == 4:
        image.header.set_zooms(loaded.header.get_zooms())
    if header is not None:
        header(image)
    path.write_bytes(gzip.compress(image.to_bytes(), compresslevel=1, mtime=0))


def _values(change: Callable[[Values], npt.NDArray[Any]]) -> Callable[[list[Path]], None]:
    """Return a defect that changes the voxels of the first subject."""
    return lambda files: _edit(files[0], values=change)


def _header(change: Callable[[Nifti1Image], None]) -> Callable[[list[Path]], None]:
    """Return a defect that changes the header of the first subject."""
    return lambda files: _edit(files[0], header=change)


def _shifted(mm: float) -> Callable[[list[Path]], None]:
    def change(image: Nifti1Image) -> None:
        affine = np.array(image.affine)
        affine[1, 3] += mm
        image.set_sform(affine, code="mni")

    return _header(change)


def _elsewhere(change: Callable[[list[Path]], None]) -> Callable[[list[Path]], None]:
    """After a change: images that no longer say that they are in MNI space."""

    def nameless(image: Nifti1Image) -> None:
        image.set_sform(image.affine, code="aligned")
        image.set_qform(None, code=0)

    def whole(files: list[Path]) -> None:
        change(files)
        _header(nameless)(files)

    return whole


def _no_affine(image: Nifti1Image) -> None:
    image.set_sform(None, code=0)
    image.set_qform(None, code=0)


def _left_and_right(image: Nifti1Image) -> None:
    affine = np.array(image.affine)
    image.set_sform(affine, code="mni")
    affine[0] *= -1
    image.set_qform(affine, code="mni")


def _flipped(files: list[Path]) -> None:
    """Store the first subject with axes z, -x, y: nothing is wrong with that."""
    import nibabel as nib

    loaded: Any = nib.load(files[0])
    turn = np.array([[1, -1], [2, 1], [0, 1]])
    turned = loaded.as_reoriented(turn)
    image = nib.Nifti1Image(np.asarray(turned.dataobj, dtype=np.float32), turned.affine)
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_zooms((*image.header.get_zooms()[:3], loaded.header.get_zooms()[3]))
    files[0].write_bytes(gzip.compress(image.to_bytes(), compresslevel=1, mtime=0))


def _with(values: Values, where: Any, value: float) -> Values:
    changed = values.copy()
    changed[where] = value
    return changed


def _low_x(values: Values, share: float) -> npt.NDArray[np.bool_]:
    """Return the voxels of the lowest `share` of the x axis."""
    inside = np.zeros(values.shape, dtype=bool)
    inside[: round(share * values.shape[0])] = True
    return inside


def _constant(values: Values) -> Values:
    where = _low_x(values, 0.6)[..., 0]
    changed = values.copy()
    changed[where] = changed[where].mean(axis=-1, keepdims=True)
    return changed


def _dummies(values: Values) -> Values:
    changed = values.copy()
    changed[..., 0] *= 1.5
    return changed


def _native(files: list[Path]) -> None:
    for path in files[: len(files) // 2 + 1]:
        _edit(path, values=lambda v: _with(v, _low_x(v, 0.6), 0.0))


def _tr_in_ms(image: Nifti1Image) -> None:
    image.header.set_zooms((*image.header.get_zooms()[:3], 2000.0))
    image.header.set_xyzt_units("mm", "msec")


def _no_tr(image: Nifti1Image) -> None:
    image.header.set_zooms((*image.header.get_zooms()[:3], 1.0))
    image.header.set_xyzt_units("mm")


def _other_tr(image: Nifti1Image) -> None:
    image.header.set_zooms((*image.header.get_zooms()[:3], 2.5))


def _cut_time(values: Values) -> Values:
    return values[..., :5]


def _complex(files: list[Path]) -> None:
    if files[0].suffix == ".npy":
        _save(files[0], np.load(files[0]).astype(np.complex64))
    else:
        _edit(files[0], values=lambda v: v.astype(np.complex64))


# ------------------------------------------------------------------------------- confounds


def _table(change: Callable[[list[list[str]]], list[list[str]]]) -> Callable[[list[Path]], None]:
    """Return a defect that changes the cells of the first run's confound table."""

    def make(files: list[Path]) -> None:
        path = confounds_beside(files[0])
        assert path is not None, "the first run has no confound table: use layout bids"
        cells = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
        lines = ["\t".join(row) for row in change(cells)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    return make


def _without_column(cells: list[list[str]]) -> list[list[str]]:
    return [row[1:] for row in cells]


def _text_cell(cells: list[list[str]]) -> list[list[str]]:
    return [cells[0], ["high", *cells[1][1:]], *cells[2:]]


# ------------------------------------------------------------------------------- matrices


def _save(path: Path, array: npt.NDArray[Any], *, allow_pickle: bool = False) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    path.write_bytes(buffer.getvalue())


def _matrix(change: Callable[[Values], npt.NDArray[Any]]) -> Callable[[list[Path]], None]:
    """Return a defect that changes the matrix of the first subject."""
    return lambda files: _save(files[0], change(np.load(files[0])))


def _objects(files: list[Path]) -> None:
    # The one pickle that is written: the bad input of row 40, which must never be read.
    _save(files[0], np.array([{"a": 1}, None], dtype=object), allow_pickle=True)


def _no_variable(files: list[Path]) -> None:
    values = np.load(files[0])
    files[0].unlink()
    np.savez(files[0].with_suffix(".npz"), bold=values, masked=values)


def _mat_73(files: list[Path]) -> None:
    files[0].unlink()
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created by a test"
    files[0].with_suffix(".mat").write_bytes(head.ljust(512, b" ") + b"\x89HDF\r\n\x1a\n")


DEFECTS: dict[str, Defect] = {
    "missing": Defect(
        row=1, needs="any", make=lambda f: _manifest(f, "sub-998_task-rest_bold.nii.gz,998")
    ),
    "outside": Defect(row=2, needs="any", make=lambda f: _manifest(f, f"../local0/{f[0].name},7")),
    "folder": Defect(row=3, needs="any", make=_folder_as_file),
    "no_files": Defect(row=4, needs="any", make=_no_files),
    "duplicate": Defect(row=5, needs="any", make=_duplicate),
    "empty": Defect(row=7, needs="any", make=_empty),
    "lfs_pointer": Defect(row=8, needs="any", make=_lfs_pointer),
    "text_as_nii": Defect(row=9, needs="any", make=_text),
    "truncated_gz": Defect(row=10, needs="image", make=_truncate),
    "truncated_nii": Defect(row=11, needs="image", make=_truncate_plain),
    "truncated_npy": Defect(row=11, needs="matrix", make=_truncate),
    "three_d": Defect(row=12, needs="image", make=_values(lambda v: v[..., 0])),
    "five_d": Defect(row=13, needs="image", make=_values(lambda v: np.stack([v, v], axis=3))),
    "complex": Defect(row=14, needs="any", make=_complex),
    "no_affine": Defect(row=15, needs="image", make=_header(_no_affine)),
    "left_right": Defect(row=16, needs="image", make=_header(_left_and_right)),
    "wrong_grid": Defect(row=17, needs="image", make=_elsewhere(_values(lambda v: v[1:]))),
    "rounded_affine": Defect(row=18, needs="image", make=_shifted(0.04)),
    "shifted_affine": Defect(row=19, needs="image", make=_elsewhere(_shifted(2.0))),
    "flipped_axes": Defect(row=20, needs="image", make=_flipped),
    "native_space": Defect(row=21, needs="image", make=_native),
    "nan": Defect(row=25, needs="image", make=_values(lambda v: _with(v, _low_x(v, 0.3), np.nan))),
    "constant": Defect(row=26, needs="image", make=_values(_constant)),
    "dead": Defect(row=27, needs="image", make=_values(np.zeros_like)),
    "coverage": Defect(
        row=28, needs="image", make=_values(lambda v: _with(v, _low_x(v, 0.6), 0.0))
    ),
    "too_short": Defect(row=29, needs="image", make=_values(_cut_time)),
    "too_short_matrix": Defect(row=29, needs="matrix", make=_matrix(_cut_time)),
    "no_tr": Defect(row=32, needs="image", make=_header(_no_tr)),
    "tr_in_ms": Defect(row=33, needs="image", make=_header(_tr_in_ms)),
    "other_tr": Defect(row=34, needs="image", make=_header(_other_tr)),
    "dummies": Defect(row=35, needs="image", make=_values(_dummies)),
    "confound_rows": Defect(row=36, needs="bids", make=_table(lambda c: c[:-3])),
    "confound_column": Defect(row=37, needs="bids", make=_table(_without_column)),
    "confound_text": Defect(row=37, needs="bids", make=_table(_text_cell)),
    "ragged_table": Defect(row=38, needs="any", make=_ragged),
    "decimal_comma": Defect(row=38, needs="any", make=_decimal_comma),
    "no_file_column": Defect(row=39, needs="any", make=_no_file_column),
    "pickle_npy": Defect(row=40, needs="matrix", make=_objects),
    "mat_73": Defect(row=41, needs="matrix", make=_mat_73),
    "no_variable": Defect(row=42, needs="matrix", make=_no_variable),
    "swapped_orientation": Defect(row=43, needs="matrix", make=_matrix(lambda v: v.T)),
    "other_features": Defect(row=44, needs="matrix", make=_matrix(lambda v: v[1:])),
    "same_names": Defect(row=62, needs="any", make=_same_names),
    "surface": Defect(row=63, needs="image", make=_surface),
}
