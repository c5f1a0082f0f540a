"""What is installed, and what is shipped: exact versions with digests, nothing else."""

import fnmatch
import importlib.util
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from support.scripts import script

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
    files = {"docker": "dev", "notebook": "dev", "nvflare": "flare"}
    pairs += [(files.get(name, "lock"), text) for name in extras for text in extras[name]]
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


KNOWN_HOLES = {
    "cryptography": ["42.0.0", "42.0.8", "43.0.3", "44.0.0"],  # OpenSSL in their wheels
    "jinja2": ["3.1.0", "3.1.2", "3.1.3", "3.1.4", "3.1.5"],  # out of the sandbox, by five ways
}


@pytest.mark.parametrize("name", KNOWN_HOLES)
def test_no_version_with_known_holes_is_allowed_or_locked(name: str) -> None:
    """Lower bounds admitted what advisories name."""
    (asked,) = [Requirement(t) for t in PROJECT["project"]["dependencies"] if t.startswith(name)]
    assert [version for version in KNOWN_HOLES[name] if version in asked.specifier] == []
    for file in FILES:
        assert locked(file.stem).get(name, set()).isdisjoint(KNOWN_HOLES[name]), file.name


def test_the_extras_of_the_page_are_those_of_the_package() -> None:
    """Two of them stood in no table, and an error named one of the two."""
    extras = set(PROJECT["project"]["optional-dependencies"])
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    table = page.partition("## Extras\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == extras
    assert {*script("licences").EXTRAS} == {"", *extras}
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "cape").rglob("*.py")]
    named = {
        extra
        for file in files
        for listed in re.findall(r"coinstac-cape\[(\w[\w,]*)\]", file.read_text(encoding="utf-8"))
        for extra in listed.split(",")
    }
    assert named - extras == set()


def test_nothing_is_installed_that_is_not_locked() -> None:
    """Each install of the Makefile and the image checks digests, or is the package itself."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(PIP)", "pip")
    makefile = makefile.replace("\\\n", " ").replace("--disable-pip-version-check --no-input ", "")
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = [
        line for line in (makefile + dockerfile).splitlines() if re.search(r"\bpip install\b", line)
    ]
    assert len(installs) == 6
    for line in installs:
        assert "--require-hashes" in line or "--no-deps" in line, line


def test_the_image_stands_on_a_digest_and_on_nothing_else() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (base,) = re.findall(r"^ARG BASE_IMAGE=(\S+)$", dockerfile, re.MULTILINE)
    assert re.fullmatch(r"python@sha256:[0-9a-f]{64}", base)
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", dockerfile, re.MULTILINE)
    named = {name for _, name in stages if name}
    assert {source for source, _ in stages} - named == {"${BASE_IMAGE}"}


def test_nobody_but_its_builder_may_write_into_the_image() -> None:
    """The folder of fonts was writable by every user id, and others read what lay there."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    modes = re.findall(r"(?:chmod[ =](?:-R )?|mkdir -m )(\S+)", dockerfile)
    assert modes == ["755", "u=rwX,go=rX"]


# -- licences ------------------------------------------------------------------------------------


def rows() -> dict[str, tuple[str, str]]:
    page = (ROOT / "docs/licences.md").read_text(encoding="utf-8")
    return {
        name: (version, licence)
        for name, version, licence in re.findall(r"^\| ([\w-]+) \| (\S+) \| (.+) \|$", page, re.M)
        if name != "package"
    }


def test_actions_of_the_forge_are_commits_not_names_that_move() -> None:
    used = [
        line.strip()
        for file in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert used
    pinned = re.compile(r"- uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+")
    assert [line for line in used if not pinned.fullmatch(line)] == []


def test_every_package_that_ships_has_a_licence_that_is_allowed() -> None:
    licences, listed = script("licences"), rows()
    locked_here = locked("lock")
    assert set(locked_here) <= set(listed), "run packaging/licences.py"
    for name, (version, licence) in listed.items():
        assert licences.allowed(licence), f"{name}: {licence}"
        assert version in locked("flare").get(name, {version}), f"{name}: another version is locked"
        if importlib.util.find_spec(name.replace("-", "_")) and licences.licence(name):
            assert licences.licence(name) == licence, f"{name}: the page lags behind"


@pytest.mark.parametrize(
    ("licence", "fine"),
    [
        ("MIT", True),
        ("GPL-3.0-only OR MIT", True),
        ("BSD-3-Clause AND (Zlib AND 0BSD)", True),
        ("BSD-3-Clause AND GPL-3.0-only", False),
        ("AGPL-3.0-or-later", False),
        ("", False),
    ],
)
def test_a_licence_that_asks_for_more_is_not_allowed(licence: str, fine: bool) -> None:
    assert script("licences").allowed(licence) is fine


def test_every_bundled_file_has_a_line_in_the_notice() -> None:
    bundled = [
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "cape").rglob("*")
        if file.is_file() and file.suffix != ".py" and file.parent.name != "__pycache__"
    ]
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    lines = re.findall(r"^(cape/\S+) ", notice, re.MULTILINE)
    assert len(bundled) > 40
    for name in bundled:
        assert [line for line in lines if fnmatch.fnmatch(name, line)], name
    for line in lines:
        assert [name for name in bundled if fnmatch.fnmatch(name, line)], f"{line}: no such file"


def test_the_address_for_reports_stands_in_one_place() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md",
             *(ROOT / "docs").rglob("*.md")]  # fmt: skip
    holders = [page.name for page in pages if re.search(r"^Contact: ", page.read_text(), re.M)]
    assert holders == ["SECURITY.md"]


# -- release -------------------------------------------------------------------------------------


@pytest.mark.long
def test_two_builds_are_equal_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another folder, umask, time of files, time zone, order of hashes, SOURCE_DATE_EPOCH."""
    check = script("check_release")
    one = check.build_copy(tmp_path / "one", rights=0o755, time=1.2e9, zone="UTC")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    two = check.build_copy(tmp_path / "a" / "b", rights=0o700, time=1.5e9, zone="Asia/Tokyo")
    files = sorted(path.name for path in one.iterdir())
    assert [Path(name).suffix for name in files] == [".whl", ".gz"]
    for name in files:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


def test_a_copy_to_build_from_leaves_out_what_git_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing asks no git: who unpacked an archive has none, and runs these tests too."""
    check = script("check_release")
    kept = [".gitignore", "README.md", "cape/a.py", "cape/out.py", "test/outputs/b.txt"]
    left = [".git/HEAD", ".venv/bin/python", "out/c.nii", "cape/__pycache__/a.cpython-313.pyc",
            "test/output/d.txt", "coinstac.egg-info/PKG-INFO", ".coverage"]  # fmt: skip
    for name in kept + left:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_bytes((ROOT / ".gitignore").read_bytes())
    monkeypatch.setattr(check, "TOP", tmp_path)
    assert check.files_to_copy() == kept


def test_the_wheel_is_tried_and_not_the_clone_it_was_built_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make release` has its clone on PYTHONPATH; an installed `cape` would then be that one."""
    check, tried = script("check_release"), []
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(check.venv, "create", lambda *_, **__: None)

    def run(step: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        tried.append((Path(step[0]).name, how.get("env", os.environ)))
        return subprocess.CompletedProcess(step, int("simulate" in step), "", "enough")

    monkeypatch.setattr(check.subprocess, "run", run)
    (said,) = check.problems_installed(tmp_path / "coinstac_cape-0.1.0-py3-none-any.whl")
    assert said.endswith("enough")
    assert [name for name, _ in tried].count("cape") == 3
    assert not [name for name, environment in tried if "PYTHONPATH" in environment]


def test_versions_agree_wherever_one_is_written() -> None:
    release = script("release")
    version = release.said("cape/settings/config.py", r'^VERSION = "(.+)"$')
    assert version == release.said("CITATION.cff", r"^version: (.+)$")
    assert version == release.said("Dockerfile", r'image\.version="([^"]+)"')
    assert release.said("CHANGELOG.md", r"^## (\S+)") == version
