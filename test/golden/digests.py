"""Digests of files and messages, and the words for the first difference.

A digest is of exact bytes wherever two runs of one seed give equal bytes.  `VOLATILE` and the three
kinds below (pages, pictures) are all that is looked at in another way.
"""

import base64
import hashlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

VOLATILE: tuple[tuple[str, str, str], ...] = (
    (r"reading takes [0-9.]+ (ms|s|min|h)", "reading takes TIME", "how long `validate` took"),
    (r'"seconds": ?[0-9.e-]+', '"seconds": 0', "the same in JSON"),
    (r"\([0-9]+ MB free\)", "(SPACE free)", "memory and disk of this computer"),
)
"""Pattern, what stands for it, and why: in what commands print.  No result file needs one."""

TEXT = {".json", ".jsonl", ".tsv", ".csv", ".md", ".txt", ".toml", ".html"}
PARTS = 48
"""Parts of a text that have a mark of their own, to say where the first difference is."""


def sha(content: bytes) -> str:
    """Return 16 hex digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


def _mark(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:3]


def normal(path: str, content: bytes) -> bytes:
    """Return what is digested of a file.

    HTML
        Runs of white space are one blank, and nothing between tags: templates may be laid out in
        another way.  Pictures inside stand by their pixels.
    PNG
        Size and pixels: compression may change with a library.
    run.json
        Without the folder of this play, and the way it went.
    Everything else
        The bytes.
    """
    if path.endswith(".html"):
        return _page(content)
    if PurePath(path).name == "run.json":
        return re.sub(rb'"(directory|through)": "[^"]*"', rb'"\1": ""', content)
    return _pixels(content) if path.endswith(".png") else content


def printed(text: str, folder: Path) -> str:
    """Return what a command printed, without the folder of this play and without times."""
    text = text.replace(str(folder), "FOLDER")
    for pattern, stands, _ in VOLATILE:
        text = re.sub(pattern, stands, text, flags=re.MULTILINE)
    # Progress is told once a minute: how many lines there are says how fast the computer is.
    told = r'^(.*, about [^,\n]* left|\{"event": "progress", .*\})\n'
    return re.sub(told, "", text, flags=re.MULTILINE)


def _page(content: bytes) -> bytes:
    text = re.sub(
        r"data:image/png;base64,([A-Za-z0-9+/=]+)",
        lambda found: _pixels(base64.b64decode(found[1])).decode(),
        content.decode(),
    )
    return re.sub(r"\s+", " ", re.sub(r">\s+<", "><", text)).strip().encode()


def _pixels(content: bytes) -> bytes:
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        pixels = image.convert("RGBA").tobytes()
        return f"png {image.width}x{image.height} {sha(pixels)}".encode()


def entry(path: str, content: bytes) -> str:
    """Return the record of a file: its digest, and of a text that people read the marks of parts.

    Files of single subjects have no marks: there are many.
    """
    content = normal(path, content)
    if Path(path).suffix not in TEXT or Path(path).name.startswith("sub-"):
        return sha(content)
    marks = [_mark(part) for part in _parts(_pieces(path, content))]
    return f"{sha(content)} {''.join(marks)}"


def _pieces(path: str, content: bytes) -> list[bytes]:
    return re.split(rb"(?=<)" if path.endswith(".html") else rb"(?<=\n)", content)


def _parts(pieces: list[bytes]) -> list[bytes]:
    step = -(-len(pieces) // PARTS)
    return [b"".join(pieces[i : i + step]) for i in range(0, len(pieces), step)]


def message(content: bytes) -> str:
    """Return the record of a message: its digest, and a mark for each of its fields."""
    return f"{sha(content)} {''.join(_mark(value) for _, value in _fields(content))}"


def _fields(content: bytes) -> list[tuple[str, bytes]]:
    try:
        document: Any = json.loads(content)
    except ValueError:
        return [("content", content)]
    if not isinstance(document, dict):
        return [("content", content)]
    found = []
    for name, value in document.items():
        inner = value.items() if name in ("body", "progress") and isinstance(value, dict) else ()
        found += [(f"{name}.{key}", _text(item)) for key, item in inner]
        if not inner:
            found.append((name, _text(value)))
    return sorted(found)


def _text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def differing_fields(recorded: str, content: bytes) -> str:
    """Name the fields of a message whose marks differ."""
    old, fields = _marks(recorded), _fields(content)
    if len(old) != len(fields):
        return f"other fields; now {', '.join(name for name, _ in fields)}"
    names = [name for mark, (name, value) in zip(old, fields, strict=True) if _mark(value) != mark]
    return "differs in " + (", ".join(names) or "the order or spelling of its fields")


def differing_part(path: str, recorded: str, content: bytes) -> str:
    """Say where a file differs first, and what stands there now."""
    content = normal(path, content)
    pieces, old = _pieces(path, content), _marks(recorded)
    if not old:
        return f"{len(content)} bytes now, other than recorded"
    step = -(-len(pieces) // PARTS)
    for k, part in enumerate(_parts(pieces)):
        if k >= len(old) or _mark(part) != old[k]:
            unit = "tag" if path.endswith(".html") else "line"
            said = part.decode(errors="replace").strip()
            count = len(pieces) - (pieces[-1] == b"")
            first, last = k * step + 1, min((k + 1) * step, count)
            return f"{unit}s {first} to {last} of {count}, now: {said[:1000]}"
    return "it ends earlier than recorded"


def _marks(recorded: str) -> list[str]:
    _, _, marks = recorded.partition(" ")
    return re.findall("...", marks)


Reader = Callable[[str], bytes]


def differences(recorded: dict[str, Any], now: dict[str, Any], read: Reader) -> list[str]:
    """Return what differs, in the order in which one thing follows from another.

    `read` returns the content of a file, or of a message by its name, as it is now.
    """
    found = shape_differences(recorded, now)
    for name, old in recorded["data"].items():
        if now["data"].get(name, old) != old:
            found.append(f"generated data {name}: {differing_part(name, old, read(name))}")
    for name, old in recorded["messages"].items():
        if now["messages"].get(name, old) != old:
            found.append(f"message {name}: {differing_fields(old, read(name))}")
    for name, new in now["by process"].items():
        if recorded["by process"].get(name) != new:
            found.append(f"of processes only: {name}")
    for kind, word in (("files", "file"), ("printed", "printed by")):
        for name, old in recorded[kind].items():
            if now[kind].get(name, old) != old:
                found.append(f"{word} {name}: {differing_part(name, old, read(name))}")
    return found


def shape_differences(recorded: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return which files and messages there are more, or fewer, than recorded."""
    found = []
    for kind in ("data", "messages", "files", "printed"):
        old, new = list(recorded[kind]), list(now[kind])
        found += [f"{kind}: missing now: {name}" for name in old if name not in now[kind]]
        found += [f"{kind}: new: {name}" for name in new if name not in recorded[kind]]
        if sorted(old) == sorted(new) and old != new:
            first = next(a for a, b in zip(old, new, strict=True) if a != b)
            found.append(f"{kind}: another order, from {first} on")
    return found
