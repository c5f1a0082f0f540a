"""Hooks of the documentation site (mkdocs.yml): what pages need that are read without a site too.

Pages of the repository's root join those of docs/, links to code become plain text, the gallery is
made by running examples/*.py, and the first mention of a glossary word on a page is a link.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import re
import warnings
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# Of the root, as pages of the site
ADOPTED = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
# The page of all names of Python, as a reader meets them
GROUPS = {
    "Run": [
        "JointICA",
        "Consortium",
        "simulate",
        "rerun",
        "compare",
        "compare_groups",
        "ProgressBar",
    ],
    "Results": ["Result", "Comparison", "GroupResult"],
    "Budget": ["budget"],
    "Data and settings": ["validate", "FeatureSpace", "Config", "names", "load"],
    "Errors and warnings": [
        "CapeError",
        "CapeWarning",
        "NoiseWarning",
        "PrivacyWarning",
        "SubjectsWarning",
    ],
}
# Where words are not looked for: lists, and what was written at a time
NO_WORDS = ("notation.md", "errors.md", "config.md", "changelog.md", "api.md")
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
# Code, and whole links: nothing inside them is looked at for words
ROW = r"^\| (?!word |---)([^|]+?) \|"
CODE = re.compile(r"(```.*?```|`[^`\n]+`|\[[^\]]*\]\([^)]*\)|^#.*?$|^\|.*?$)", re.S | re.M)

# The theme prints what a command prints, and comments, fainter than everybody can read.
STYLE = """
[data-md-color-scheme="default"] { --faint: #555; }
[data-md-color-scheme="slate"] { --faint: #bfc3cf; }
[data-md-color-scheme] {
  --md-code-hl-generic-color: var(--faint); --md-code-hl-comment-color: var(--faint);
  --md-code-hl-operator-color: var(--faint); --md-code-hl-punctuation-color: var(--faint);
  --md-code-hl-variable-color: var(--faint);
}
.md-header__title { overflow: hidden; } /* a long title made narrow pages wider */
.md-typeset :not(pre) > code { overflow-wrap: anywhere; white-space: normal; }
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that do not lie in docs/."""
    pages = {new: (ROOT / old).read_text(encoding="utf-8") for old, new in ADOPTED.items()}
    pages |= {"api.md": _api()}
    scripts = sorted((ROOT / "examples").glob("*.py"))
    # While a page is being written the gallery need not be run each time.
    run = not os.environ.get("CAPE_SITE_QUICK")
    made = {f"gallery/{script.stem}.md": _example(script, run=run) for script in scripts}
    pages |= made | {"gallery/index.md": _index(made)}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "site.css", content=STYLE))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Fit a page to the site."""
    del config
    if page.file.src_uri == "README.md":
        markdown = _front(markdown)
    text = re.sub(r"^```(\w+) [\w ]+$", r"```\1", markdown, flags=re.M)
    # The table above it says the same; the drawing would need a program from elsewhere.
    text = re.sub(r"^```mermaid\n.*?^```\n", "", text, flags=re.S | re.M)
    here = Path(page.file.src_uri)

    def mended(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = os.path.normpath(here.parent / target)
        root = here.name if here.name in ADOPTED.values() else ""
        if root and target.startswith("docs/"):
            return f"[{words}]({target.removeprefix('docs/')}{anchor})"
        name = os.path.basename(path)
        if name in ADOPTED and (path.startswith("..") or root):
            up = "../" * (len(here.parts) - 1)
            return f"[{words}]({up}{ADOPTED[name]}{anchor})"
        if (file := files.get_file_from_path(path)) is not None:
            # A name of a file says something in a folder; here the page's own title does.
            shown = _title(file) if words.endswith(name) and name.endswith(".md") else words
            return f"[{shown}]({target}{anchor})"
        example = re.fullmatch(r"(?:\.\./)?examples/(\w+)\.py", path)
        if example and files.get_file_from_path(f"gallery/{example[1]}.md"):
            return f"[{words}](gallery/{example[1]}.md)"
        return words  # a file of the repository, which the site does not have

    text = LINK.sub(mended, text)
    if here.name == "glossary.md":
        return re.sub(ROW, lambda m: f'| <a id="{_anchor(m[1])}"></a>{m[1]} |', text, flags=re.M)
    return text if here.name in NO_WORDS else _with_words(text, here)


def _front(markdown: str) -> str:
    """Return the overview of all pages below what the project says of itself."""
    read_me = (ROOT / "README.md").read_text(encoding="utf-8")
    said = read_me.partition("\n## Try it\n")[0].replace("](docs/", "](")
    return f"{said}\n\n" + re.sub("^# ", "## ", markdown)


def _title(file: File) -> str:
    found = re.search(r"^# (.+)$", file.content_string, re.M)
    return found[1] if found else file.name


def _with_words(text: str, here: Path) -> str:
    """Make the first mention of each glossary word a link."""
    words = _glossary()
    up = "../" * (len(here.parts) - 1)
    parts = CODE.split(text)
    for i in range(0, len(parts), 2):  # odd ones are code, links, headings, tables
        for word in [w for w in words if re.search(rf"\b{re.escape(w)}\b", parts[i])]:
            anchor = words.pop(word)
            link = f"[{word}]({up}glossary.md#{anchor})"
            pieces = CODE.split(parts[i])
            for k in range(0, len(pieces), 2):
                pieces[k], n = re.subn(rf"\b{re.escape(word)}\b", link, pieces[k], count=1)
                if n:
                    break
            parts[i] = "".join(pieces)
    return "".join(parts)


def _glossary() -> dict[str, str]:
    """Return word -> anchor; longer words first, so that a part of one is not taken."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = [word.partition(" (")[0] for word in re.findall(ROW, text, re.M)]
    # A word of one letter, or of two meanings, is no link.
    single = [w for w in words if words.count(w) == 1 and len(w) > 3 and "," not in w]
    return {word: _anchor(word) for word in sorted(single, key=len, reverse=True)}


def _anchor(word: str) -> str:
    return re.sub(r"\W+", "-", word.partition(" (")[0].lower())


def _api() -> str:
    parts = ["# Python, name by name", "Longer examples: [Python interface](python.md)."]
    parts += [
        "Here `sites` are arrays and `tables` columns of three sites, `study` is a folder of such."
    ]
    for title, names in GROUPS.items():
        parts += [f"## {title}", *(f"::: cape.{name}" for name in names)]
    return "\n\n".join(parts) + "\n"


def _index(pages: dict[str, str]) -> str:
    lines = [
        "# Gallery",
        "",
        "Each page is a script of `examples/`, run when the site was built.",
        "",
    ]
    for name, text in pages.items():
        title, _, first = text.partition("\n")
        sentence = first.strip().split("\n\n")[0].replace("\n", " ")
        lines.append(f"- [{title.lstrip('# ')}]({Path(name).name}): {sentence}")
    return "\n".join(lines) + "\n"


def _example(script: Path, *, run: bool) -> str:
    """Run a script cell by cell; return its words, code, what it printed, and its figures."""
    source = script.read_text(encoding="utf-8")
    _, head, rest = source.split('"""', 2)
    title, _, words = head.strip().partition("\n")
    parts = [f"# {title.lstrip('# ').rstrip('.')}", "", words.strip(), ""]
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in re.split(r"^# %%", rest, flags=re.M)[0 if rest.strip() else 1 :]:
        if not cell.strip():
            continue
        lines = cell.splitlines()
        note = [lines[0].strip()] if lines[0].strip() else []
        body = lines[1:]
        while body and body[0].startswith("#"):
            note.append(body.pop(0).lstrip("# "))
        code = "\n".join(body).strip()
        parts += [" ".join(note), ""]
        if not code:
            continue
        printed = io.StringIO()
        names.pop("figure", None)
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if run:
                exec(compile(code, str(script), "exec"), names)  # noqa: S102 - our own scripts
        parts += ["```python", code, "```", ""]
        if printed.getvalue():
            parts += ["```text", printed.getvalue().rstrip(), "```", ""]
        if "figure" in names:
            image = io.BytesIO()
            names["figure"].savefig(image, format="png", dpi=80, bbox_inches="tight")
            png = base64.b64encode(image.getvalue()).decode()
            parts += [
                f'<img alt="All maps of the result, in z" src="data:image/png;base64,{png}">',
                "",
            ]
    return "\n".join(parts) + "\n"
