"""Array files, one run each, read without pickle; scipy and h5py are imported for .mat only."""

import hashlib
import io
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, Literal

import numpy as np

from cape import arrays
from cape.algorithms.estimators import Array, Data
from cape.data.file_type import MATRIX_SUFFIXES, TEXT_SUFFIXES, check_type, content_word, suffix_of
from cape.data.issues import Issue, IssueCode, UnusableFile
from cape.data.runs import Series, SiteRun, unread
from cape.data.tables import read_text_matrix
from cape.delimited import delimiter_of

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
Orientation = Literal["time_by_feature", "feature_by_time"]

# Classes of MATLAB that have another name in NumPy; whole numbers have the same.
MAT_KINDS: Final = {"double": "f8", "single": "f4", "logical": "u1"}

MAT73_MAGIC: Final = (b"MATLAB 7.3", b"\x89HDF")
# Deflate, shuffle, check sum: the filters of MATLAB; others may load foreign code.
MAT73_FILTERS: Final = {1, 2, 3}
# Classes of MATLAB that store numbers as they are.
MAT73_NUMBERS: Final = {"double", "single", "logical"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}

# Names of columns that count time
OF_TIME: Final = frozenset(
    ("time", "times", "t", "time_s", "timepoint", "time_point", "seconds", "sec", "s", "onset")
)
MAT73: Final = "MATLAB 7.3, which is HDF5"
# Variables listed where the wanted one is missing.
MAX_VARIABLES: Final = 12


def read_matrix(
    run: SiteRun, orientation: Orientation, variable: str = "X", *, headers_only: bool = False
) -> Series:
    """Return features by time (D, T); UnusableFile: no complete real matrix, or no `variable`."""
    check_type(run.path, MATRIX_SUFFIXES)
    by_time = orientation == "time_by_feature"
    # Text has no header that tells its size: a table is read whole.
    if headers_only and suffix_of(run.path.name) not in TEXT_SUFFIXES:
        with run.path.open("rb") as stream:
            shape, dtype = _header(run.path, stream, variable)
        _check(shape, dtype, orientation)
        values = unread(*(reversed(shape) if by_time else shape))
        return Series(values=values, tr=run.tr, digest="", grid="-")
    # Read once: the digest and the numbers must be those of the same bytes.
    content = run.path.read_bytes()
    columns, array = _read(run.path, content, variable, by_feature=not by_time)
    _check(array.shape, array.dtype, orientation)
    # t1, t2 and plain numbers may be time points.
    names_regions = len({column.rstrip("0123456789. ") for column in columns}) > 1
    of_features = by_time or len(columns) == len(array) != array.shape[1]
    if not of_features and len(array) > array.shape[1] and names_regions:
        observed = f"{len(array)} rows below {array.shape[1]} names such as '{columns[0]}'"
        raise UnusableFile(IssueCode.TRANSPOSED, observed, n_features=array.shape[1])
    # A copy, which cleaning overwrites.
    with np.errstate(over="ignore"):  # values beyond float32 become infinite and count as such
        values = np.require(array.T if by_time else array, np.float32, ["C", "W"])
    digest, names = hashlib.sha256(content).hexdigest(), columns if of_features else ()
    issues: tuple[Issue, ...] = ()
    if rises := column_of_time(names, values):
        issues = (Issue(IssueCode.COLUMN_OF_TIME, f"column '{rises}'"),)
    return Series(values=values, tr=run.tr, digest=digest, grid="-", columns=names, issues=issues)


def column_of_time(columns: Sequence[str], values: Array | Data) -> str:
    """Return a column of (D, T) that counts time: one of its names that rises, or equal steps."""
    if not columns or values.shape[1] < 3:
        return ""
    # By three volumes first: differences of all would take the memory of the table again.
    first, second, last = values[:, 0], values[:, 1], values[:, -1]
    for k in np.flatnonzero((first < second) & (second < last) & np.isfinite(last)).tolist():
        with np.errstate(invalid="ignore"):
            steps = np.diff(values[k])
            is_even = np.ptp(steps) <= 1e-3 * steps.max()
        if (steps > 0).all() and (is_even or columns[k].strip().lower() in OF_TIME):
            return columns[k]
    return ""


def _check(shape: tuple[int, ...], dtype: np.dtype[np.generic], orientation: str) -> None:
    if dtype.kind not in "iuf":
        raise UnusableFile(IssueCode.ARRAY_NO_NUMBERS, content_word(dtype))
    if len(shape) != 2 or shape[orientation == "time_by_feature"] == 0:
        raise UnusableFile(IssueCode.ARRAY_NO_MATRIX, f"shape {shape}")


def _header(path: Path, stream: BinaryIO, variable: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    size = path.stat().st_size
    if suffix_of(path.name) != ".mat":
        with _opened(stream, size, variable) as (member, held):
            shape, _, dtype = arrays.read_bounded_header(member, held)
            return shape, dtype
    head = stream.read(16)
    stream.seek(0)
    if head.startswith(MAT73_MAGIC):
        with _mat73_dataset(stream, variable, size) as dataset:
            return tuple(reversed(dataset.shape)), dataset.dtype
    shape, kind, _ = _shape_in_mat(stream, variable, size)
    return shape, np.dtype(kind)


def _read(
    path: Path, content: bytes, variable: str, *, by_feature: bool = False
) -> tuple[tuple[str, ...], Numbers]:
    suffix, stream, size = suffix_of(path.name), io.BytesIO(content), len(content)
    if suffix in TEXT_SUFFIXES:
        return read_text_matrix(content, delimiter_of(path.name, ""), by_feature=by_feature)
    if suffix != ".mat":
        with _opened(stream, size, variable) as (member, held):
            return (), arrays.read_array(member, held)
    if content.startswith(MAT73_MAGIC):
        # MATLAB stores columns first: its rows are the last axis of the file.
        with _mat73_dataset(stream, variable, size) as dataset:
            return (), np.asarray(dataset[()]).T
    from scipy import io as scipy_io

    variable = _shape_in_mat(stream, variable, size)[2]
    try:
        return (), np.asarray(scipy_io.loadmat(stream, variable_names=[variable])[variable])
    except Exception as err:  # its reader raises whatever a damaged file leads it to
        raise _truncated(size) from err


def read_variable(content: bytes, variable: str) -> Numbers:
    """Return one variable of a .mat file, of any shape; `UnusableFile`."""
    return _read(Path("x.mat"), content, variable)[1]


def _one_of(variable: str, there: Mapping[str, tuple[int, ...]]) -> str:
    """Return the variable to read: `variable`, else the only matrix of a file."""
    matrices = [n for n, shape in there.items() if len(shape) == 2 and min(shape) > 1]
    return matrices[0] if variable not in there and len(matrices) == 1 else variable


def _shape_in_mat(stream: BinaryIO, variable: str, size: int) -> tuple[tuple[int, ...], str, str]:
    """Return shape, kind and name of a variable of a .mat file of version 5 to 7, by its header."""
    from scipy import io as scipy_io

    try:
        there = {name: (shape, kind) for name, shape, kind in scipy_io.whosmat(stream)}
    except Exception as err:  # its reader raises whatever a damaged file leads it to
        raise _truncated(size) from err
    variable = _one_of(variable, {name: shape for name, (shape, _) in there.items()})
    if variable not in there:
        names = ", ".join(f"{name} {shape}" for name, (shape, _) in there.items())
        raise _no_variable(variable, names, f"save(file, '{variable}')")
    shape, kind = there[variable]
    # Before anything is allocated: a header of 200 bytes may declare a matrix of 10 GB.
    if 8 * math.prod(shape) > arrays.max_unpacked(size):
        raise _truncated(size)
    return shape, MAT_KINDS.get(kind, kind if kind[:3] in ("int", "uin") else "O"), variable


@contextmanager
def _opened(stream: BinaryIO, size: int, variable: str) -> Iterator[tuple[IO[bytes], int]]:
    try:
        if stream.read(2) != b"PK":
            stream.seek(0)
            yield stream, size
            return
        with zipfile.ZipFile(stream) as archive:
            if f"{variable}.npy" not in archive.namelist():
                shapes = {}
                for name in archive.namelist():
                    with archive.open(name) as file:
                        shapes[name.removesuffix(".npy")] = arrays.read_header(file)[0]
                if (one := _one_of(variable, shapes)) not in shapes:
                    names = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
                    raise _no_variable(variable, names, f"an array called {variable}")
                variable = one
            with arrays.open_member(archive, variable, size) as (member, held):
                yield member, held
    except arrays.BROKEN as err:
        if "pickle" in str(err).lower():
            raise UnusableFile(IssueCode.ARRAY_PICKLED, "an array of Python objects") from err
        raise _truncated(size) from err


def _no_variable(variable: str, names: str, how: str) -> UnusableFile:
    observed = names or "no variables"
    return UnusableFile(IssueCode.NO_VARIABLE, observed, variable=variable, how=how)


def _truncated(size: int) -> UnusableFile:
    return UnusableFile(IssueCode.ARRAY_TRUNCATED, f"{size} bytes")


@contextmanager
def _mat73_dataset(stream: IO[bytes], variable: str, size: int) -> Iterator[Any]:
    try:
        import h5py
    except ImportError:
        raise UnusableFile(IssueCode.MAT73_NO_READER, MAT73) from None
    try:
        with h5py.File(stream, "r") as file:
            # Links into other files are listed, and never followed.
            links = {name: file.get(name, getlink=True) for name in file}
            names = [name for name, link in links.items() if isinstance(link, h5py.HardLink)]
            shapes = {name: getattr(file[name], "shape", ()) for name in names}
            variable = _one_of(variable, shapes)
            if variable not in names:
                plain = [name for name in names if not name.startswith("#")]
                how = f"save(file, '{variable}', '-v7.3')"
                raise _no_variable(variable, ", ".join(plain[:MAX_VARIABLES]), how)
            dataset = file[variable]
            if not isinstance(dataset, h5py.Dataset):
                what = "a struct, an object or a sparse matrix"
                raise UnusableFile(IssueCode.ARRAY_NO_NUMBERS, what)
            _check_dataset(dataset, size)
            yield dataset
    except UnusableFile:
        raise
    except Exception as err:  # its reader raises whatever a damaged file leads it to
        raise _damaged("it cannot be read to its end") from err


# HDF5 can declare more than a file holds, refer to other files and ask for filters, which are
# programs: all of this is refused before anything is allocated or loaded.
def _check_dataset(dataset: Any, size: int) -> None:
    if dataset.dtype.kind not in "iuf":  # a pair of reals is complex; references are cells
        raise UnusableFile(IssueCode.ARRAY_NO_NUMBERS, content_word(dataset.dtype))
    # MATLAB's name of the type, because text is stored as whole numbers; other programs give none.
    name = dataset.attrs.get("MATLAB_class", b"double")
    kind = name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)
    if kind not in MAT73_NUMBERS:
        raise UnusableFile(IssueCode.ARRAY_NO_NUMBERS, f"class {kind}")
    if "MATLAB_empty" in dataset.attrs:
        raise _damaged("the variable is empty")
    if dataset.external or dataset.is_virtual:
        raise _damaged("the variable lies in another file")
    chain = dataset.id.get_create_plist()
    if {chain.get_filter(i)[0] for i in range(chain.get_nfilters())} - MAT73_FILTERS:
        raise _damaged("the variable is packed in a way that MATLAB does not use")
    stored = dataset.id.get_storage_size()
    most = arrays.max_unpacked(stored)
    for shape in (dataset.shape, dataset.chunks or ()):
        if math.prod(shape) * dataset.dtype.itemsize > most or stored > size:
            raise _damaged("its header declares more than the file holds")


def _damaged(why: str) -> UnusableFile:
    return UnusableFile(IssueCode.MAT73_DAMAGED, f"{MAT73}: {why}")
