"""The author files of a NeuroFLAME computation, for a user's checkout of its boilerplate.

Written here, from the settings; nothing of the boilerplate is in them.  They lie generated in
``packaging/neuroflame`` too, to be read.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cape.coinstac.demonstrations import N_SITES, SETTINGS
from cape.computations import load
from cape.config import PRODUCT, VERSION, choices
from cape.errors import ConfigError
from cape.neuroflame.steps import CAP_SECONDS, EXCHANGE_SECONDS, MAX_ITERATIONS

AUTHORS: Final = "app/code/computation"
REQUIREMENTS: Final = "requirements.txt"
# A checkout has these; the framework's files are its own, and must stay as they were released.
MARKS: Final = ("app/code/framework/__init__.py", "makeJob.py", REQUIREMENTS)
# Of the package with pages that have pictures; its pins allow no nilearn.
WANTED: Final = (f"coinstac-cape=={VERSION}", "matplotlib>=3.8,<3.10", "scipy>=1.10,<1.12")

SPEC: Final = f'''"""Joint ICA of fMRI, differentially private per subject: coinstac-cape."""

from framework import (
    ComputationSpec,
    iterative_workflow,
    local_step,
    remote_step,
    site_output_step,
)

from cape.neuroflame.steps import answer, begin, combine, has_ended, write

SPEC = ComputationSpec(
    workflow=iterative_workflow(
        local_step(fn=answer, input_fn=begin),
        remote_step(fn=combine),
        site_output_step(fn=write),
        stop_when=has_ended,
        max_iterations={MAX_ITERATIONS},
    ),
)
'''

DESCRIPTION: Final = f"""# coinstac-cape {VERSION}

**Algorithm.** Joint independent component analysis of the fMRI of several sites: common maps,
private time courses. What leaves a site is a secure sum with calibrated noise, so that the result
is differentially private for every subject (CAPE: the sites' noises are correlated and cancel).

**Data.** A site's folder holds its preprocessed images (or matrices, tables, a BIDS folder), and,
if it wants limits of its own, `site-policy.toml`: no environment reaches a container here, so a
file among the data is the only way. With `key_trust=pinned` its `identity_key` and `roster.json`
lie there too. The ledger of all runs is kept in `.cape-site` beside them; do not delete it.

**Parameters.** `parameters.json` holds the owner's settings, as `display_notes.md` lists them.
`n_sites` (or `site_names`, the display names) must be that of the run.

**Output.** `index.html`, maps as NIfTI, `results.json`, `privacy.json`, tables; a site's own files
in `private/` where its policy asks for them; `site-error.txt` with the reason of a stop.

**Limits.** Every site must answer to the end: there are no drop-outs and no resume. A run ends
after {CAP_SECONDS / 60:.0f} minutes, at about {EXCHANGE_SECONDS:.0f} s an exchange as the
framework is shipped; a plan with more is refused before anything is charged. Pages have no
anatomy and no names of networks, since the framework's pins allow no nilearn.

**Hardware.** Memory of a site is a few times its largest run: `cape validate` says how much.

**Validator.** `cape validate FOLDER --settings settings.toml`, at every site, before the run.
"""


def files() -> dict[str, str]:
    """Return text by path below a checkout."""
    return {
        f"{AUTHORS}/__init__.py": '"""coinstac-cape for NeuroFLAME."""\n',
        f"{AUTHORS}/spec.py": SPEC,
        "description.md": DESCRIPTION,
        "display_notes.md": display_notes(),
        "test_data/server/parameters.json": _json(example_parameters()),
        "requirements-cape.txt": "\n".join(WANTED) + "\n",
    }


def display_notes() -> str:
    """Return the table of parameters for the leader, who edits a free JSON file."""
    config = load(PRODUCT).config
    hints = typing.get_type_hints(config)
    lines = [
        "# Parameters",
        "",
        "| name | default | values | meaning |",
        "|---|---|---|---|",
    ]
    for spec in dataclasses.fields(config):
        meta = spec.metadata
        required = spec.default is dataclasses.MISSING
        default = "(required)" if required else json.dumps(spec.default)
        values = ", ".join(choices(hints[spec.name])) or hints[spec.name].__name__
        text = f"{meta['label']}. {meta['help']}".strip().replace("|", "\\|")
        lines.append(f"| `{spec.name}` | {default} | {values} | {text} |")
    return "\n".join(lines) + "\n"


def example_parameters() -> dict[str, Any]:
    """Return settings for three sites of a few invented subjects: the maps are noise."""
    return {"computation": PRODUCT, "n_sites": N_SITES, **SETTINGS[PRODUCT]}


def lay(checkout: Path, parameters: Mapping[str, object] | None = None) -> list[str]:
    """Write the author files into a checkout of the boilerplate; return their paths.

    `parameters`: the owner's settings in place of the example.  Author files that were there are
    removed; a requirement is added once.  ConfigError E321 for a folder that is no checkout.
    """
    if not all((checkout / mark).is_file() for mark in MARKS):
        raise ConfigError("E321", detail=str(checkout))
    for old in (checkout / AUTHORS).glob("*.py"):
        old.unlink()
    written = files()
    if parameters is not None:
        written["test_data/server/parameters.json"] = _json(dict(parameters))
    del written["requirements-cape.txt"]
    for name, text in written.items():
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    requirements = checkout / REQUIREMENTS
    lines = requirements.read_text(encoding="utf-8").splitlines()
    missing = [line for line in WANTED if line not in lines]
    requirements.write_text("\n".join([*lines, *missing]) + "\n", encoding="utf-8")
    return [*written, REQUIREMENTS]


def _json(document: object) -> str:
    return json.dumps(document, indent=2) + "\n"
