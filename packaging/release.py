"""Make a release: ``make release``, from a tag ``v<version>`` of a clean checkout.

Everything is built from a fresh clone of that commit, so that nothing of this folder can get in,
and checked before it is called done: wheel and sdist with the bill of materials
(check_release.py), the site (links, widths and axe, where chromium is), the image where a
container engine is, and SHA256SUMS.  From another commit it is a rehearsal: the same work, and what
is missing for a release is listed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

TOP = Path(__file__).parents[1]
DIST = TOP / "dist"
BROWSER = "test/e2e/test_report_browser.py"


def main(arguments: list[str] | None = None) -> int:
    """Build and check everything; 1 if anything is amiss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="append", default=[], choices=["site", "image"])
    without = parser.parse_args(arguments).without
    version = said("cape/settings/config.py", r'^VERSION = "(.+)"$')
    missing = unready(version)
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        clone = Path(place) / f"coinstac-cape-{version}"
        subprocess.run(["git", "clone", "--quiet", TOP, clone], check=True)
        environment = os.environ | {"PYTHONPATH": str(clone)}
        environment.pop("SOURCE_DATE_EPOCH", None)  # hatchling's own time, the same for everybody
        python = [sys.executable, "-m"]
        subprocess.run(
            [*python, "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(DIST)],
            cwd=clone, env=environment, check=True,
        )  # fmt: skip
        checked = [sys.executable, clone / "packaging/check_release.py", DIST]
        if subprocess.run(checked, cwd=clone, env=environment, check=False).returncode:
            return 1
        if "site" not in without:
            site = clone / "site"
            subprocess.run(
                [*python, "mkdocs", "build", "--strict", "--quiet", "--site-dir", site],
                cwd=clone, env=environment | {"NO_MKDOCS_2_WARNING": "1"}, check=True,
            )  # fmt: skip
            looked = [*python, "pytest", "-q", "-m", "browser", "-k", "site", BROWSER]
            seen = environment | {"CAPE_SITE": str(site)}
            if shutil.which("chromium") is None:
                missing.append("nobody looked at the site: run `make test-site` where chromium is")
            elif subprocess.run(looked, cwd=clone, env=seen, check=False).returncode:
                return 1
            with tarfile.open(DIST / f"coinstac-cape-{version}-site.tar.gz", "w:gz") as archive:
                archive.add(site, f"coinstac-cape-{version}-site")
        image = "" if "image" in without else built_image(clone, version)
    if not image:
        missing.append("no image was made: run `make image` where docker or podman is")
    sums = [
        f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}" for f in sorted(DIST.iterdir())
    ]
    (DIST / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf-8")
    print("\n".join(["", *sums, f"image: {image}" if image else "", ""]))
    print("\n".join(["Missing for a release:", *(f"  - {line}" for line in missing)]) + "\n")
    print(STEPS.format(version=version))
    return 0


STEPS = """What a person does now, in this order:
  1. mends what is listed above, and begins again;
  2. reads CHANGELOG.md once more as a site's administrator, "Privacy-relevant changes" above all;
  3. git push origin v{version}
  4. python -m twine upload dist/*.whl dist/*.tar.gz   (not the site: it ends in -site.tar.gz)
  5. pushes the image under a name that begins with coinstac, and writes down its digest;
  6. puts SHA256SUMS, the bill of materials and that digest beside the release notes;
  7. unpacks the site where it is served; archives the release where it gets a DOI."""


def said(file: str, pattern: str) -> str:
    """Return what a file of the project says of itself; empty: nothing."""
    found = re.search(pattern, (TOP / file).read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def unready(version: str) -> list[str]:
    """Return what keeps this commit from being a release."""
    tags = git("tag", "--points-at", "HEAD").split()
    problems = [] if f"v{version}" in tags else [f"this commit has no tag v{version}"]
    if git("status", "--porcelain", "--untracked-files=no"):
        problems.append("changes that are not committed, and are in nothing that was built")
    if said("CHANGELOG.md", r"^## (.+)$") != version:
        problems.append(f"the first section of CHANGELOG.md is not `## {version}`")
    if said("CITATION.cff", r"^version: (.+)$") != version:
        problems.append(f"CITATION.cff is not of {version}")
    if not said("CITATION.cff", r"^date-released: (.+)$"):
        problems.append("CITATION.cff has no date-released")
    if "@" not in said("SECURITY.md", r"^Contact: (.+)$"):
        problems.append("SECURITY.md names no address (the line `Contact:`)")
    return problems


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def built_image(clone: Path, version: str) -> str:
    """Build the image and start it; returns its name and digest, empty: no engine here."""
    engine = shutil.which("docker") or shutil.which("podman")
    if engine is None:
        return ""
    name = f"coinstac-cape:{version}"
    base = os.environ.get("CAPE_BASE_IMAGE", "")
    build = [
        engine,
        "build",
        "--quiet",
        "--tag",
        name,
        f"--build-arg=REVISION={git('rev-parse', 'HEAD')}",
    ]
    build += [f"--build-arg=BASE_IMAGE={base}"] if base else []
    done = subprocess.run([*build, clone], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"image: {(done.stderr.strip() or 'not built').splitlines()[-1]}")
        return ""
    tried = [engine, "run", "--rm", "--network=none", "--read-only", name, "cape", "--version"]
    says = subprocess.run(tried, capture_output=True, text=True, check=True).stdout.strip()
    if says != f"cape {version}":
        raise SystemExit(f"image: says {says}, is to say cape {version}")
    return f"{name} {done.stdout.strip()}"


if __name__ == "__main__":
    raise SystemExit(main())
