"""The author files of a NeuroFLAME computation, for a user's checkout of its boilerplate.

Generated from ``templates`` and the settings, without text of the boilerplate.  Copies to read are
in ``packaging/neuroflame``.
"""

import dataclasses
import json
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cape.computations import about, load, names
from cape.engines.neuroflame import steps
from cape.engines.setting_texts import texts_of
from cape.errors import ConfigError
from cape.settings.config import PRODUCT, VERSION
from cape.settings.option import choices

_TEMPLATES: Final = Path(__file__).parent / "templates"
AUTHORS: Final = "app/code/computation"
REQUIREMENTS: Final = "requirements.txt"
PARAMETERS: Final = "test_data/server/parameters.json"
# Files that a checkout has; the framework's own files must stay as released.
CHECKOUT_FILES: Final = ("app/code/framework/__init__.py", "makeJob.py", REQUIREMENTS)
# The package with plots; the pins of the boilerplate exclude nilearn.  Bounds keep its numpy 1.24
# and its typing-extensions, whichever of the two is installed first.
WANTED: Final = (
    f"coinstac-cape=={VERSION}", "cryptography>=44.0.1,<51", "matplotlib>=3.8,<3.10",
    "scipy>=1.10,<1.12", "nibabel>=5.1,<5.4", "contourpy<1.3.3", "jinja2>=3.1.6,<4",
    "typing-extensions<4.12",
)  # fmt: skip
# Pins of the boilerplate that give way: their versions have known holes, and cape refuses them.
REPLACED: Final = ("cryptography", "jinja2")

# Description of the product; for other computations the module's docstring is used.
ALGORITHM: Final = """Joint independent component analysis of fMRI of several sites: common maps,
private time courses. What leaves a site is a secure sum with calibrated noise, so that the result
is differentially private for every subject (CAPE: the sites' noises are correlated and cancel)."""


def files(parameters: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return text by path below a checkout.

    `parameters`: the owner's settings, of the product unless they name a computation.  Default:
    those of three sites with a few synthetic people, whose results are noise.
    """
    name = str((parameters or {}).get("computation", PRODUCT))
    example = (_TEMPLATES / "parameters.json").read_text(encoding="utf-8")
    named = {"computation": name, **(parameters or {})}
    return {
        f"{AUTHORS}/__init__.py": '"""coinstac-cape for NeuroFLAME."""\n',
        f"{AUTHORS}/spec.py": _filled("spec.py.txt", max_iterations=steps.MAX_ITERATIONS),
        "description.md": _filled(
            "description.md",
            version=VERSION,
            name=name,
            algorithm=ALGORITHM if name == PRODUCT else ". ".join(about(name)),
            minutes=steps.CAP_SECONDS / 60,
            seconds=steps.EXCHANGE_SECONDS,
        ),
        "display_notes.md": display_notes(name),
        PARAMETERS: example if parameters is None else json.dumps(named, indent=2) + "\n",
    }


def _filled(template: str, **values: object) -> str:
    return (_TEMPLATES / template).read_text(encoding="utf-8").format(**values)


def display_notes(name: str) -> str:
    """Return the table of parameters for the leader, who edits a JSON file."""
    config = load(name).config
    hints, texts = typing.get_type_hints(config), texts_of(config)
    rows = []
    for spec in dataclasses.fields(config):
        if spec.name in steps.NOT_IN_NEUROFLAME:
            continue
        required = spec.default is dataclasses.MISSING
        default = "(required)" if required else json.dumps(spec.default)
        values = ", ".join(choices(hints[spec.name])) or hints[spec.name].__name__
        rows.append(f"| `{spec.name}` | {default} | {values} | {texts[spec.name].meaning} |")
    others = ", ".join(names())
    return _filled("display_notes.md", name=name, others=others, rows="\n".join(rows))


def lay(checkout: Path, parameters: Mapping[str, object] | None = None) -> list[str]:
    """Write the author files into a checkout of the boilerplate; return their paths.

    `parameters`: as in `files`.  Existing author files are removed; a requirement is added once,
    and takes the place of a pin in `REPLACED`.
    ConfigError E321 for a folder that is no checkout, E011 for settings that NeuroFLAME cannot run.
    """
    if not all((checkout / mark).is_file() for mark in CHECKOUT_FILES):
        raise ConfigError("E321", detail=str(checkout))
    steps.check_settings(parameters or {})
    written = files(parameters)
    for old in (checkout / AUTHORS).glob("*.py"):
        old.unlink()
    for place, text in written.items():
        path = checkout / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    requirements = checkout / REQUIREMENTS
    lines = [
        line
        for line in requirements.read_text(encoding="utf-8").splitlines()
        if re.split("[=<>~! ]", line, maxsplit=1)[0].lower() not in REPLACED or line in WANTED
    ]
    missing = [line for line in WANTED if line not in lines]
    requirements.write_text("\n".join([*lines, *missing]) + "\n", encoding="utf-8")
    return [*written, REQUIREMENTS]
