"""Meanings of single words of a path, and the names of series; see producers.toml."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from cape.frozen import dataclass

PRODUCERS_FILE: Final = Path(__file__).with_name("producers.toml")
FileKind = Literal["volume", "cifti", "matrix"]
KIND_ENDS: Final[Mapping[FileKind, tuple[str, ...]]] = {
    "volume": (".nii.gz", ".nii", ".img"),
    "cifti": (".dtseries.nii", ".ptseries.nii"),
    "matrix": (".npy", ".npz", ".mat", ".csv", ".tsv", ".txt", ".1d"),
}
_END: Final = re.compile(
    rf"(?:{'|'.join(map(re.escape, (end for each in KIND_ENDS.values() for end in each)))})\Z",
    re.IGNORECASE,
)
KINDS: Final[tuple[FileKind, ...]] = ("volume", "cifti", "matrix")
# v4.0.0, 0.009, 1.6mm and a date with its time are one part of a name; 001.1 is two.
_WHOLE: Final = r"\d{4}-\d\d-\d\d(?:_\d\d_\d\d_\d\d(?:\.\d)?)?|v\d+(?:\.\d+)+|0\.\d+|\d+\.\d+mm"
_BETWEEN: Final = r"_\-. +=,~()"
_PART: Final = re.compile(rf"((?:{_WHOLE})(?![^{_BETWEEN}])|[^{_BETWEEN}]+)|([{_BETWEEN}]+)")
_DATE: Final = re.compile(
    r"\d{4}-\d\d-\d\d.*|(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
    r"|(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:19|20)\d\d|(?:19|20)\d{6}x\d+"
)
_SITE: Final = re.compile(r"(?:site|centre|center|hospital|clinic|lab|local)[-_]?[a-z0-9]*")
# Names of folders that hold another version of the same data.
_PIPELINE: Final = re.compile(
    r"(?:fmriprep|xcp_?d|xcp-d|xcpengine|cpac|c-pac|halfpipe|tedana|niak|nibabies|aroma|fmripost|mriqc|afni|fsl|spm"
    r"|conn|dpabi|ccs|dparsf)[-_a-z0-9.]*|funimg\w*|rois_\w+|reg_standard|ica_aroma|derivatives"
    r"|(?:no)?(?:filt|gsr|global|smooth|scrub|aroma|raw|native|mni)(?:ed)?\d*(?:mm)?(?:_[a-z]+)?"
)
# A surname needs the atlas' number of regions or its year behind it: power_001 is a person's.
# Names of TemplateFlow end in dseg.
_ATLAS: Final = re.compile(
    r"r?(?:aal[23]?(?:v\d.*)?|aal_?(?:90|116|166|170|mni.*)|roi_mni_v\d.*|harvardoxford.*|"
    r"brainnetome.*|bn_atlas.*|hcp-?mmp_?(?:1|360).*|cc[24]00|"
    r"(?:schaefer_?(?:2018|1000|[1-9]00)|gordon_?(?:2014|333)|glasser_?360|shen_?(?:268|368)|"
    r"power_?(?:2011|264)|yeo_?2011|craddock_?2012|dosenbach_?160|hammers_?(?:083|095))(?:\D.*)?|"
    r"(?:destrieux|desikan|juelich|neuromorphometrics|aicha)|"
    r"atlas[_-](?![a-z]?\d+(?!\d|mm)|sub).*)|tpl-.*_dseg",
    re.IGNORECASE,
)
_ANATOMY: Final = r"(?:w?c[1-6]|w?m)?t1|c[1-6]"
# Steps of SPM and DPABI before a name, one letter each: rest, srest, swrarest.
MAX_STEP_LETTERS: Final = 12
MIN_ID_DIGITS: Final = 4  # a number with so many digits can only be a person's


@functools.cache
def producers_table() -> Mapping[str, Any]:
    return tomllib.loads(PRODUCERS_FILE.read_text(encoding="utf-8"))


@functools.cache
def words(name: str) -> frozenset[str]:
    """Return the words of producers.toml under a name."""
    return frozenset(producers_table()["words"][name].split())


def any_of(texts: Collection[str]) -> str:
    """Return a regex for one of some texts, the longest that fits."""
    return rf"(?:{'|'.join(map(re.escape, sorted(texts, key=lambda t: (-len(t), t))))})"


@functools.cache
def _role_regex(role: str) -> re.Pattern[str]:
    some = any_of(words(role)) if role in ("session", "run", "subject") else ""
    months = (
        r"\d{1,2}(?:mo|months?|wk|weeks?|yr?|years?)|m\d\d|(?:baseline|followup|\d+year)[a-z0-9]*"
    )
    return re.compile(
        {
            "session": rf"{some}\d{{0,3}}|[vt][1-9]|{months}|(?:{_DATE.pattern})",
            "run": rf"{some}(?:state)?\d{{0,3}}|{any_of(words('direction'))}",
            "subject": rf"{some}[a-z]?\d+[a-z]?",
            "group": any_of(words("group")),
            "site": _SITE.pattern,
            "version": _PIPELINE.pattern,
        }[role]
    )


def is_word(role: str, text: str) -> bool:
    """Tell whether a part of a name is a word for a role."""
    return _role_regex(role).fullmatch(text.lower()) is not None


def role_of(values: Sequence[str], before: Sequence[str] = ()) -> str:
    """Return the role that the words of all values of a part share; empty if there is none.

    `before`: the parts in front of it, whose words may say what its numbers count.
    """
    low = [value.lower() for value in values]
    for role in ("session", "run", "group", "site", "version"):
        if all(is_word(role, value) for value in low):
            # v1 .. v9: visits, if there are few of them; else people of these names.
            short = role == "session" and all(re.fullmatch(r"[vt]\d", value) for value in low)
            return "" if short and len(low) > MIN_ID_DIGITS else role
    core = min(low, key=len)
    if len(core) > 2 and all(
        v.endswith(core) and len(v) - len(core) <= MAX_STEP_LETTERS for v in low
    ):
        return "version" if not core.isdecimal() else ""
    if all(is_word("subject", value) for value in low):
        return "subject"
    word = re.sub(r"\d+$", "", before[-1].lower()) if before else ""
    if word == "id" and len(before) > 1:
        word = before[-2].lower()
    if word in words("subject"):
        return "subject"
    if all(value.isdecimal() and len(value) < MIN_ID_DIGITS for value in low):
        return next((role for role in ("session", "run") if word in words(role)), "")
    return ""


def parts(text: str, known_label: re.Pattern[str] | None = None) -> list[tuple[str, str]]:
    """Return the words of a name and the signs between them, as (word, "") or ("", signs).

    A name that is `known` is one word, whatever signs it holds.
    """
    if known_label is None or (matched := known_label.search(text)) is None:
        return _PART.findall(text)
    front, back = text[: matched.start()], text[matched.end() :]
    return [*parts(front, known_label), (matched[0], ""), *parts(back, known_label)]


def stem(name: str) -> str:
    """Return a file's name without the ending of its kind."""
    return _END.sub("", name)


def of_kind(path: str, kind: FileKind) -> bool:
    """Tell whether a name has an ending of a kind; CIFTI files are no volumes."""
    low = path.lower()
    return low.endswith(KIND_ENDS[kind]) and not (
        kind == "volume" and re.search(r"\.[dp](?:tseries|scalar|label|conn)\.nii$", low)
    )


def is_atlas(name: str) -> bool:
    """Tell whether a file has the name that its makers give a label image."""
    return bool(_ATLAS.fullmatch(stem(name.rpartition("/")[2])))


def is_series(path: str, kind: FileKind) -> bool:
    """Tell by its name whether a file holds a series: no atlas, and see `may_be_series`."""
    return may_be_series(path, kind) and not (kind == "volume" and is_atlas(path))


# The search for sites and each site ask this of the same names.
@functools.lru_cache(maxsize=2**17)
def may_be_series(path: str, kind: FileKind) -> bool:
    """Tell whether a name is that of no mask, mean, map or table beside a series."""
    if not of_kind(path, kind):
        return False
    *folders, name = path.split("/")
    base = stem(name)
    if base.lower() in words("owners"):
        return False
    # The last word of a BIDS name is its kind.
    if "sub-" in base and base.rpartition("_")[2] in words("bids_series"):
        return "sourcedata" not in folders and not re.search(r"_desc-(mean|brain|confounds)_", base)
    # The values of entities such as space- or task- do not say the kind of a file.
    plain = re.sub(r"(?<![A-Za-z])[a-z]+-[A-Za-z0-9+]+", "", base)
    low = [word.lower() for word, _ in parts(plain) if word]
    if words("beside") & {*low, *(re.sub(r"\d+$", "", word) for word in low)}:
        return False
    if low and (low[0].startswith("mean") or (len(low) == 1 and re.fullmatch(_ANATOMY, low[0]))):
        return False
    around = {folder.lower() for folder in folders}
    return not words("folders_beside") & {*around, *(re.sub(r"[_-]?\d+$", "", f) for f in around)}


def refused_ends() -> tuple[str, ...]:
    """Return the endings of data files that must be converted first, by a command of the table."""
    return tuple(end for row in producers_table()["refused"] for end in row["ends"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Producer:
    """One row of the table."""

    name: str
    kinds: tuple[str, ...]
    series: tuple[str, ...]
    proves: Literal["person", "layout"]
    take: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    space: str = ""
    tr: str = ""
    confounds: str = ""
    say: str = ""


@functools.cache
def producers() -> tuple[Producer, ...]:
    def frozen(value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    rows = producers_table()["producer"]
    return tuple(Producer(**{key: frozen(said) for key, said in row.items()}) for row in rows)
