"""Break the files of a synthetic site on purpose: one function for each way.

Only the first two subjects of a site are touched, unless the defect is one of the whole site.
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

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Image

Values = npt.NDArray[np.float32]


def make_defect(name: str, folder: Path) -> None:
    """Break the files of one site, of at least two subjects."""
    DEFECTS[name](sorted(folder.glob("sub-*")))


# ------------------------------------------------------------------------------- files


def _manifest(files: list[Path], *more: str, header: str = "file,participant_id") -> None:
    """Write a manifest of all files and the lines `more`."""
    extra = "," * (header.count(",") - 1)
    labels = (path.name.split(".")[0].split("_")[0].removeprefix("sub-") for path in files)
    named = zip(files, labels, strict=True)
    lines = [header, *(f"{path.name},{label}{extra}" for path, label in named), *more]
    (files[0].parent / "manifest.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _same_names(files: list[Path]) -> None:
    _manifest(files[1:], *(f"{top}/{files[0].name},2" for top in "ab"))


def _duplicate(files: list[Path]) -> None:
    name = files[-1].name
    shutil.copyfile(files[0], files[0].with_name("sub-999" + name[name.index(".") :]))


def _empty(files: list[Path]) -> None:
    files[0].write_bytes(b"")


def _text(files: list[Path]) -> None:
    files[0].write_text("<html>404 not found</html>\n" * 20, encoding="ascii")


def _ragged(files: list[Path]) -> None:
    _manifest(files, "sub-998.nii.gz,998,2.0,extra", header="file,participant_id,tr")


def _decimal_comma(files: list[Path]) -> None:
    _manifest(files[1:], f'{files[0].name},1,"2,0"', header="file,participant_id,tr")


def _surface(files: list[Path]) -> None:
    files[0].rename(files[0].with_name("sub-001_bold.dtseries.nii"))


def _truncate(files: list[Path]) -> None:
    content = files[0].read_bytes()
    files[0].write_bytes(content[: len(content) // 2])


# ------------------------------------------------------------------------------- images


def edit(
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
    return lambda files: edit(files[0], values=change)


def _header(change: Callable[[Nifti1Image], None]) -> Callable[[list[Path]], None]:
    """Return a defect that changes the header of the first subject."""
    return lambda files: edit(files[0], header=change)


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
        edit(path, values=lambda v: _with(v, _low_x(v, 0.6), 0.0))


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


DEFECTS: dict[str, Callable[[list[Path]], None]] = {
    "missing": lambda f: _manifest(f, "sub-998_task-rest_bold.nii.gz,998"),
    "outside": lambda f: _manifest(f, f"../local0/{f[0].name},7"),
    "duplicate": _duplicate,
    "empty": _empty,
    "text_as_nii": _text,
    "truncated_gz": _truncate,
    "truncated_npy": _truncate,
    "three_d": _values(lambda v: v[..., 0]),
    "left_right": _header(_left_and_right),
    "wrong_grid": _elsewhere(_values(lambda v: v[1:])),
    "rounded_affine": _shifted(0.04),
    "shifted_affine": _elsewhere(_shifted(2.0)),
    "flipped_axes": _flipped,
    "native_space": _native,
    "nan": _values(lambda v: _with(v, _low_x(v, 0.3), np.nan)),
    "constant": _values(_constant),
    "dead": _values(np.zeros_like),
    "coverage": _values(lambda v: _with(v, _low_x(v, 0.6), 0.0)),
    "too_short": _values(_cut_time),
    "too_short_matrix": _matrix(_cut_time),
    "no_tr": _header(_no_tr),
    "tr_in_ms": _header(_tr_in_ms),
    "other_tr": _header(_other_tr),
    "dummies": _values(_dummies),
    "ragged_table": _ragged,
    "decimal_comma": _decimal_comma,
    "pickle_npy": _objects,
    "no_variable": _no_variable,
    "swapped_orientation": _matrix(lambda v: v.T),
    "other_features": _matrix(lambda v: v[1:]),
    "same_names": _same_names,
    "surface": _surface,
}
