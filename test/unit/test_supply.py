"""What is installed, and what is shipped: exact versions with digests, nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ENTRY = re.compile(
    r"([a-z0-9-]+)==([a-z0-9.]+)(?: ; [^\\\n]+)? \\\n"
    r"(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+"
)


def locked(name: str) -> dict[str, set[str]]:
    """Return package -> versions of a file of requirements/ and of those that it stands on."""
    text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
    found: dict[str, set[str]] = {}
    for package, version in ENTRY.findall(text):
        found.setdefault(package, set()).add(version)
    for below in re.findall(r"^-r (\w+)\.txt$", text, re.MULTILINE):
        for package, versions in locked(below).items():
            found.setdefault(package, set()).update(versions)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_line_of_a_lock_is_a_version_and_its_digests(file: Path) -> None:
    rest = ENTRY.sub("", file.read_text(encoding="utf-8"))
    lines = [line for line in rest.splitlines() if not re.fullmatch(r"#.*|-r \w+\.txt", line)]
    assert lines == []
    assert locked(file.stem)


def wanted() -> list[tuple[str, str]]:
    """Return (file, requirement) for all that pyproject.toml asks for."""
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    extras = project["optional-dependencies"]
    pairs = [("lock", text) for text in project["dependencies"]]
    pairs += [("lock", text) for name in ("report", "matlab73", "fast") for text in extras[name]]
    pairs += [("dev", text) for text in extras["docker"]]
    pairs += [("flare", text) for text in extras["nvflare"]]
    pairs += [("build", text) for text in PROJECT["build-system"]["requires"]]
    homes = {"tests": "dev", "lint": "dev", "bench": "dev"}
    for name, texts in groups.items():
        pairs += [(homes.get(name, name), text) for text in texts if isinstance(text, str)]
    return sorted(set(pairs))


@pytest.mark.parametrize(("file", "text"), wanted())
def test_what_the_project_asks_for_is_locked_at_a_version_that_fits(file: str, text: str) -> None:
    asked = Requirement(text)
    versions = locked(file)[asked.name.lower().replace("_", "-")]
    assert [version for version in versions if version in asked.specifier]


def test_nothing_is_installed_that_is_not_locked() -> None:
    """Each install of the Makefile and the image checks digests, or is the package itself."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(PIP)", "pip")
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = [
        line for line in (makefile + dockerfile).splitlines() if re.search(r"\bpip install\b", line)
    ]
    assert len(installs) == 5
    for line in installs:
        assert "--require-hashes" in line or "--no-deps" in line, line


def test_the_image_stands_on_a_digest_and_on_nothing_else() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (base,) = re.findall(r"^ARG BASE_IMAGE=(\S+)$", dockerfile, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python@sha256:[0-9a-f]{64}", base)
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", dockerfile, re.MULTILINE)
    named = {name for _, name in stages if name}
    assert {source for source, _ in stages} - named == {"${BASE_IMAGE}"}
