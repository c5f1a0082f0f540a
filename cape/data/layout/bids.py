"""Person, run and version of an image, from its path by BIDS.

Only session, task, acquisition, direction and run make another run; any other entity makes another
version of the same run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cape.data.layout.words import any_of, stem, words

_LABEL: Final = re.compile(r"(.+?)(?:(?=_[a-z]+-)|(?=\.)|$)")
_FOLDER: Final = re.compile(r"(?:^|[_.])sub-(.+)$")
_NAME: Final = re.compile(r"(?:^|[._]|^[A-Za-z]{1,12})sub-(.+)$")
# sub-01, sub-01_bold, sub-01_task-..: the end of the label is certain.
_CLEAN: Final = re.compile(r"(.+?)(?:_[a-z]+-.*|\..*|_[A-Za-z]+|)")
_GOES_ON: Final = re.compile(r"[A-Za-z0-9]")
_ENTITY: Final = re.compile(r"(?<![A-Za-z0-9])([a-z]+)-([A-Za-z0-9+]+)")


def subject_label(path: str) -> tuple[str, str]:
    """Return the whole label after ``sub-`` and "", or "" and how the names contradict."""
    *folders, name = path.split("/")
    inside = [matched[1] for folder in folders if (matched := _FOLDER.search(folder))]
    labels = {matched[1] for text in inside if (matched := _LABEL.match(text))}
    named = _NAME.search(stem(name))
    text = named[1] if named else ""
    clean = _CLEAN.fullmatch(text)
    in_name = clean[1] if clean else ""
    if len(labels) > 1:
        return "", f"{path}: folders say {' and '.join(sorted(labels))}"
    in_folder = bool(labels)
    label = labels.pop() if labels else in_name
    if label.startswith(in_name + "_"):  # of a folder, which holds more words than the label
        label = in_name
    if text and (not text.startswith(label) or _GOES_ON.match(text, len(label))):
        return "", f"{path}: the folder says {label}, the name {in_name or text}"
    # BIDS forbids signs in labels.  A label with signs has a certain end only if folder and name
    # agree and an entity follows: sub-NDAR_INV1/sub-NDAR_INV1_task-rest, not sub-01_drug_run-1.
    whole = in_folder and text.startswith(label) and re.match(r"_[a-z]+-", text[len(label) :])
    return (label if label.isalnum() or whole else ""), ""


def by_value(text: str) -> str:
    """Return a number without leading zeros, other text unchanged."""
    return text.lstrip("0") or "0" if text.isdecimal() else text


def entities_of_run(path: str) -> dict[str, str]:
    """Return the entities of a path that make a run; numbers count by their value."""
    found: dict[str, set[str]] = {}
    for key, value in _ENTITY.findall(path):
        if key not in words("run_entities"):
            continue
        key = "ses" if key in ("sess", "session") else key
        if key == "task" and (counted := re.fullmatch(r"([A-Za-z]+?)(\d+)", value)):
            value = counted[1]
            found.setdefault("block", set()).add(by_value(counted[2]))
        found.setdefault(key, set()).add(by_value(value))
    return {key: "+".join(sorted(values)) for key, values in found.items()}


def without_label(path: str, label: str) -> str:
    text, at, whole = "", 0, f"sub-{label}"
    for start in _places(path, whole):
        if start >= at and not _GOES_ON.match(path, start + len(whole)):
            text, at = f"{text}{path[at:start]}sub-{{subject}}", start + len(whole)
    return text + path[at:]


def _places(path: str, text: str) -> Iterator[int]:
    # No regex per label: thousands of people would each compile one.
    at = path.find(text)
    while at >= 0:
        yield at
        at = path.find(text, at + 1)


def path_pattern(path: str, label: str) -> str:
    """Return a path with its label, session and run replaced by {subject}, {session}, {run}."""
    values: dict[str, set[str]] = {}
    for key, value in _ENTITY.findall(path):
        if key in words("run_entities"):
            values.setdefault(key, set()).add(value)
    runs = [key for key in values if not key.startswith("ses")]
    roles = {key: f"run{n}" for n, key in enumerate(runs[1:], 2)} | dict.fromkeys(runs[:1], "run")

    def role(entity: re.Match[str]) -> str:
        if len(values.get(entity[1], ())) != 1:
            return entity[0]
        return f"{entity[1]}-{{{roles.get(entity[1], 'session')}=[^/_]+}}"

    return _ENTITY.sub(role, without_label(path, label))


def version_of(path: str, label: str) -> str:
    """Return a path without its person and its run, as whole folders or words."""
    text = without_label(path, label)
    entity = rf"{any_of(words('run_entities'))}-[A-Za-z0-9+]+"
    return re.sub(rf"(?<=/){entity}/|(?<![A-Za-z0-9]){entity}_?", "", text)


def top_of(path: str, label: str) -> str:
    """Return the part of a path above and before the first mention of the person."""
    folders = path.split("/")
    at = next((n for n, part in enumerate(folders) if _names(part, label)), len(folders) - 1)
    before = re.match(r"(.*)[_.\- ]sub-", folders[at]) if at == len(folders) - 1 else None
    return "/".join([*folders[:at], *([before[1]] if before else [])])


def _names(part: str, label: str) -> bool:
    """Tell whether a part of a path has ``sub-`` or the whole label."""
    return "sub-" in part or any(
        not _GOES_ON.match(part[at - 1 : at]) and not _GOES_ON.match(part, at + len(label))
        for at in _places(part, label)
    )
