"""The names of all files below a folder, the site's own file beside them, and folders of sites.

No file of data is opened here.
"""

import os
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from cape.data.bids import RUN_MAKERS, read_name, why_no_series
from cape.data.file_type import CIFTI_SERIES, CIFTI_SUFFIX, IMAGE_SUFFIXES, MATRIX_SUFFIXES
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.manifest import MANIFEST_NAMES
from cape.data.names import normal
from cape.data.space import ATLAS_FILES, LABEL_TABLES, MASK_FILES, STRUCTURE_FILES, TEMPLATE_FILES
from cape.data.tables import RECORDS
from cape.errors import ConfigError, own_words
from cape.settings.own_words import POLICY_FILE, OwnWords

FileKind = Literal["volume", "cifti", "matrix"]
PARTICIPANTS: Final = "participants.tsv"
SETTINGS_FILE: Final = "settings.toml"
# Names the site's own file; as in `cape.site.places`, which readers of data do not know
_POLICY_VARIABLE: Final = "CAPE_SITE_POLICY"
NO_DATA: Final = (
    *MANIFEST_NAMES, PARTICIPANTS, POLICY_FILE, "checks.tsv", "basis.npz", "truth.npz",
    *MASK_FILES, *ATLAS_FILES, *LABEL_TABLES, *STRUCTURE_FILES, *TEMPLATE_FILES,
)  # fmt: skip
# A folder with one of these holds results, not data of people.
RESULTS: Final = frozenset(("results.json", "cape-site.json", "privacy.json", "site-error.txt"))
# Folders of BIDS that hold folders of people
OF_BIDS: Final = ("derivatives", "sourcedata", "rawdata")
# Folders beside those of sites that are none
NO_SITE: Final = (
    *OF_BIDS,
    *("code", "figures", "log", "logs", "out", "output", "outputs", "results", "scratch", "tmp"),
    "work",
)
# Nested folders: links may lead in a circle.
MAX_FOLDER_DEPTH: Final = 16
# Folders of the file system, which users may not read.
SYSTEM: Final = frozenset(("lost+found", "System Volume Information"))
# Endings of series that must be converted first, and a command that does it
TO_CONVERT: Final[Mapping[str, str]] = {
    ".func.gii": "wb_command -cifti-create-dense-timeseries OUT.dtseries.nii"
    " -left-metric LEFT.func.gii -right-metric RIGHT.func.gii",
    ".head": "3dAFNItoNIFTI -prefix OUT.nii.gz IN+tlrc.HEAD",
    ".dcm": "dcm2niix -z y -o OUT IN",
    ".ima": "dcm2niix -z y -o OUT IN",
    ".mnc": "mnc2nii IN.mnc OUT.nii",
    ".mgz": "mri_convert IN.mgz OUT.nii.gz",
}
_DATA: Final = (*IMAGE_SUFFIXES, *MATRIX_SUFFIXES)
# Endings of files that make a folder beside sites one of data; notes end in .txt.
_OF_DATA: Final = tuple({*_DATA, *TO_CONVERT} - {".txt"})
_LIST_NAMED: Final = PARTICIPANTS.removesuffix("tsv")


def words_beside(base: Path) -> OwnWords:
    """Return the site's own words: the file of `_POLICY_VARIABLE`, else the one in the folder.

    ConfigError E268.  A run on an engine, where others can send files into the folder, takes them
    from the site's policy instead (`cape.site.policy`), which also checks the rest of the file.
    """
    return read_words(words_file(base))


def read_words(path: Path) -> OwnWords:
    """Return the words of one file, which need not exist; ConfigError E268."""
    if not path.is_file():
        return OwnWords()
    try:
        return OwnWords.from_mapping(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as err:  # its reader has no limits of its own
        detail = own_words(err, "not UTF-8, or nested too deeply")
        raise ConfigError("E268", detail=f"{path.name}: {detail}") from err


def words_file(base: Path) -> Path:
    """Return the file of the site's own words, which need not exist."""
    named = os.environ.get(_POLICY_VARIABLE, "")
    return Path(named) if named else base / POLICY_FILE


@contextmanager
def readable(base: Path, findings: Findings) -> Iterator[None]:
    """Raise DataError, not OSError, if a folder cannot be read."""
    try:
        yield
    except OSError as err:
        place = f"{str(err.filename or base)[:200]}: {err.strerror}"
        findings.add(IssueCode.FOLDER_UNREADABLE, place)
        findings.raise_if_blocked()
        raise


def names_below(base: Path, reserved: Collection[str] = ()) -> list[str]:
    """Return the paths of all files below a folder, without results, hidden and `reserved` ones.

    OSError if any folder cannot be read: its people would be left out silently.
    """
    if not base.exists():
        return []
    names: list[str] = []
    _walk(str(base), "", frozenset((*reserved, *NO_DATA)), MAX_FOLDER_DEPTH, names)
    return sorted(names)


def _walk(folder: str, above: str, reserved: frozenset[str], deeper: int, names: list[str]) -> None:
    entries = list(os.scandir(folder))
    # Not in the folder of a person, who would be left out without a word.
    if above and "sub-" not in above and any(entry.name in RESULTS for entry in entries):
        return
    for entry in entries:
        name = entry.name
        if is_of_a_program(name) or name in SYSTEM or (not above and name in reserved):
            continue
        # A folder with the name of an image is kept: a later check reports it.
        if name.lower().endswith(_DATA) or not _is_folder(entry):
            names.append(f"{above}{name}")
        elif deeper:
            _walk(entry.path, f"{above}{name}/", reserved, deeper - 1, names)


def is_of_a_program(name: str) -> bool:
    """Tell whether a file is hidden, or one that an editor or a network disk left behind."""
    return name.startswith((".", "~$", "#")) or name.endswith("~")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or to a place that may not be read
        return False


def of_kind(path: str, kind: FileKind) -> bool:
    """Tell whether a name has an ending of a kind; CIFTI files are no volumes."""
    low = path.lower()
    if kind == "cifti":
        return low.endswith(CIFTI_SERIES)
    if kind == "matrix":
        return low.endswith(MATRIX_SUFFIXES)
    parts = low.rsplit("/", 1)[-1].split(".")
    return low.endswith(IMAGE_SUFFIXES) and not (
        len(parts) > 2 and parts[-1] == "nii" and parts[-2][1:] in _CIFTI_WORDS
    )


_CIFTI_WORDS: Final = ("tseries", "scalar", "label", "conn")


def kind_of(names: Sequence[str]) -> FileKind:
    """Return the kind of the series of a folder whose settings nobody has written yet."""
    kinds: tuple[FileKind, ...] = ("volume", "cifti", "matrix")
    return next((kind for kind in kinds if any(of_kind(name, kind) for name in names)), "volume")


def space_for(names: Sequence[str]) -> str:
    """Return the setting feature_space that fits the files of a folder."""
    # Tables such as sub-01_roi.csv are no series by their names, unless there is nothing else.
    data = [name for name in names if name.lower().endswith(_DATA)]
    kind = kind_of([name for name in data if not _is_beside(name)] or data)
    if kind == "cifti":
        ends = (s for s, end in CIFTI_SUFFIX.items() if any(n.endswith(end) for n in names))
        return next(ends, "grayordinates")
    return "matrix" if kind == "matrix" else "mask"


OF_RESULTS: Final = ("group_maps",)


def _is_beside(name: str) -> bool:
    """Tell whether a name says that a file is no series: anatomy beside tables, maps of a run."""
    try:
        named = read_name(name)
    except UnusableFile:
        return False
    return name.startswith(OF_RESULTS) or bool(named and why_no_series(named))


def sites_below(folder: Path) -> dict[str, Path]:
    """Return the folders of sites by id, sorted; {}: the folder itself is that of one site.

    A folder is a site's if it states people itself; else those below it that do are sites, and so
    is every other one there that holds data, which its own check then refuses.
    """
    with readable(folder, Findings(folder.name)):
        names = names_below(folder)
        if has_list(folder):
            return {}
        stray = next((n for n in names if "/" not in n and n.startswith("sub-")), "")
        if states_people(folder, names) and not stray:
            return {}
        below: dict[str, list[str]] = {}
        for name in names:
            top, _, rest = name.partition("/")
            if rest:
                below.setdefault(top, []).append(rest)
        folders = {
            path.name: path.resolve()
            for path in sorted(folder.iterdir())
            if path.is_dir() and _may_be_a_site(path)
        }
        stated = {
            top
            for top, path in folders.items()
            if states_people(path, below.get(top, []), deep=True)
        }
        if stray and len(stated) > 1:
            problem = f"{stray} lies beside folders that state people: {', '.join(sorted(stated))}"
            do = "move it into the folder of its site, or name one of the folders."
            raise ConfigError("E016", problem=problem, do=do, detail=str(folder))
        if stray:
            return {}
        if not stated and not _holds_data(names) and (folder / SETTINGS_FILE).is_file():
            stated = set(folders)  # nobody has put data there yet
        if not stated or _of_single_people(below, folders, stated):
            return {}
    # An empty folder stays: the check of that site reports that it has no data.
    found = {
        top: path
        for top, path in folders.items()
        if top in stated or top not in below or _holds_data(below[top])
    }
    if len(found) == 1:  # one lab, one folder further down, is called as one lab is
        return {folder.resolve().name: path for path in found.values()}
    return found


def _may_be_a_site(folder: Path) -> bool:
    return may_name_a_site(folder.name) and not any(
        (folder / result).exists() for result in RESULTS
    )


def may_name_a_site(name: str) -> bool:
    return not (is_of_a_program(name) or name.startswith("_") or name.lower() in NO_SITE)


def _of_single_people(
    below: Mapping[str, Sequence[str]], folders: Mapping[str, Path], stated: Collection[str]
) -> bool:
    """Tell whether folders hold files of one person each, and so are a site's, not sites."""
    for top in stated:
        names = below.get(top, [])
        of_folders = any(part.startswith("sub-") for n in names for part in n.split("/")[:-1])
        if of_folders or has_list(folders[top]) or len(labels_by_names(names)) != 1:
            return False
    return len(stated) > 1


def _holds_data(names: Sequence[str]) -> bool:
    # participants.xlsx lists people, and its site's own check says that it cannot be read.
    return any(name.lower().endswith(_OF_DATA) or name.startswith(_LIST_NAMED) for name in names)


def states_people(folder: Path, names: Sequence[str], *, deep: bool = False) -> bool:
    """Tell whether a folder states whose its files are: by a list, a typed layout, or BIDS.

    `deep`: names of BIDS may also lie one folder further down, as where an engine keeps them.
    """
    return has_list(folder) or any(
        top == "" or (deep and "/" not in top) for top in tops_of_bids(names)
    )


def has_list(folder: Path) -> bool:
    """Tell whether a folder has a list of people or files, or a layout that its site typed."""
    lists = (*MANIFEST_NAMES, *RECORDS, PARTICIPANTS, "dataset_description.json")
    if any(os.path.lexists(folder / name) for name in lists):
        return True
    words = read_words(folder / POLICY_FILE)
    return bool(words.layout or words.tables)


def tops_of_bids(names: Sequence[str]) -> list[str]:
    """Return the folders above people of BIDS, without folders such as ``derivatives/PROGRAM``."""
    tops = set()
    for name in names:
        parts = name.split("/")
        at = next((n for n, part in enumerate(parts) if part.startswith("sub-")), None)
        if at is not None:
            end = next((n for n, part in enumerate(parts[:at]) if part in OF_BIDS), at)
            tops.add("/".join(parts[:end]))
    return sorted(tops)


def site_folders(directory: Path) -> dict[str, Path]:
    """Return the folders of the sites by id, sorted; for one site the folder itself.

    ConfigError E016: the folder holds no data.
    """
    if folders := sites_below(directory):
        return folders
    with readable(directory, Findings(directory.name)):
        names = names_below(directory)
    lists = (*MANIFEST_NAMES, *RECORDS, PARTICIPANTS)
    if _holds_data(names) or any((directory / name).is_file() for name in lists):
        return {directory.resolve().name: directory.resolve()}
    do = "name the folder of one site, or one that holds a folder of each; "
    do += "data to try it with: cape synth FOLDER."
    raise ConfigError("E016", problem="the folder holds no data", do=do, detail=str(directory))


def labels_by_names(names: Sequence[str]) -> set[str]:
    """Return the labels of people that names of BIDS state, without a check of anything else."""
    labels = set()
    for name in names:
        try:
            if named := read_name(name):
                labels.add(normal(named.label))
        except UnusableFile:
            continue
    return labels


def run_words(entities: Mapping[str, str]) -> str:
    """Return entities of a run, without its session, as one text."""
    return "_".join(f"{k}-{text}" for k, text in entities.items() if k in RUN_MAKERS and k != "ses")
