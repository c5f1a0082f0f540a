"""Files that are generated from the code: compspec.json, inputspec.json, pages of docs/.

The settings dataclass of a computation is the only place where a setting is described; forms,
documents and checks all come from it.  ``cape compspec`` writes the files, ``cape compspec
--check`` says which of them are stale.  Nothing here takes part in a run.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any, Final

from cape.computations import load, module_of, names
from cape.config import PRODUCT, VERSION, Config, choices
from cape.frozen import dataclass
from cape.pages import (
    config_page,
    errors_page,
    groups,
    own_settings,
    rounds_table,
    with_rounds,
    with_settings,
)

IMAGE_NAME: Final = (
    "coinstac-cape"  # without a tag; COINSTAC lists only names that start with coinstac
)
TITLE: Final = "Private joint ICA (capeDJICA)"
DESCRIPTION: Final = (
    "Maps that are common to the fMRI of several sites, from joint temporal ICA. No image leaves "
    "a site, and what is released is differentially private for every subject."
)

_DATA: Final[dict[str, Any]] = {
    "label": "Data",
    "type": "files",
    "items": ["images"],
    "extensions": [["nii", "gz", "img", "hdr", "npy", "npz", "mat", "csv", "tsv", "json"]],
    "description": "One 4-D image or one matrix per subject, or a manifest with all files it "
    "names; a mask or an atlas if the settings say 'file'. No two files of the same name.",
    "source": "member",
}
_POLICY: Final[dict[str, Any]] = {
    "label": "Policy of this site (optional)",
    "type": "files",
    "items": ["policy"],
    "extensions": [["toml"]],
    "description": "site-policy.toml: it can only tighten what the owner of the run has chosen.",
    "source": "member",
}
_SUMMARY: Final = {
    "status": "Status",
    "epsilon": "Total epsilon",
    "delta": "Delta",
    "private": "Private",
    "n_sites": "Sites",
    "n_subjects": "Subjects",
    "n_components": "Components",
    "rounds": "Rounds",
    "version": "Version",
}
_COMPONENT: Final = {
    "share": "Share of retained variance",
    "peak": "Peak (mm)",
    "peak_z": "Peak z",
    "label": "Nearest network",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Generated:
    """A generated file: where it goes below the project folder, and what it must hold."""

    path: str
    text: str


def compspec_document(
    config: type[Config],
    *,
    name: str = TITLE,
    image: str = IMAGE_NAME,
    description: str = DESCRIPTION,
    chosen: str = "",
) -> dict[str, Any]:
    """Return compspec.json for the settings of a computation.

    Parameters
    ----------
    config : type of Config
        Its options become inputs of the owner, in order of declaration within each group.
    name : str
        Shown to people.
    image : str
        Container image, without a tag.
    description : str
        Shown to people.
    chosen : str
        The computation, if it is not the product: one more input names it, and results are tables.
    """
    inputs: dict[str, Any] = {"data": _DATA, "policy": _POLICY, **_owner_inputs(config)}
    if chosen:
        # The image has all computations; a form with one choice says which one it starts.
        inputs["computation"] = _choice(chosen)
    # The app sorts by this number, not by the order in the file.
    for order, spec in enumerate(inputs.values()):
        spec["order"] = order
    return {
        "meta": {
            "id": f"coinstac-{chosen}" if chosen else IMAGE_NAME,
            "name": name,
            "description": description,
            "repository": IMAGE_NAME,
            "version": VERSION,
            # Containers that serve: version 1 would start a process for every round.
            "compspecVersion": 2,
            "tags": ["fMRI", "ICA", "differential privacy"],
        },
        "computation": {
            "type": "docker",
            "dockerImage": image,
            "command": ["python", "/computation/local.py"],
            "remote": {
                "type": "docker",
                "dockerImage": image,
                # Required by COINSTAC though the service answers; so it works in both ways.
                "command": ["python", "/computation/remote.py"],
            },
            "display": [
                {"type": "iframe"},
                {
                    "type": "table",
                    "tables": [
                        {"source": "summary"},
                        *([] if chosen else [{"source": "components", "subtables": "by-key"}]),
                    ],
                },
            ],
            "input": inputs,
            "output": {
                "summary": _table("Global summary", _SUMMARY),
                **({} if chosen else {"components": _table("Components", _COMPONENT)}),
            },
        },
    }


def compspec_of(name: str) -> dict[str, Any]:
    return compspec_document(load(name).config) if name == PRODUCT else computation_document(name)


def computation_document(name: str) -> dict[str, Any]:
    """Return the compspec of a computation that is not the product; its docstring describes it."""
    module = module_of(name)
    title, _, rest = (module.__doc__ or "").partition("\n\n")
    first = " ".join(rest.partition("\n\n")[0].split()).replace("``", "")
    return compspec_document(
        load(name).config,
        name=f"{name}: {title.rstrip('.')}",
        description=first,
        chosen=name,
    )


def _choice(name: str) -> dict[str, Any]:
    return {
        "label": "Computation",
        "source": "owner",
        "group": "Analysis",
        "type": "select",
        "values": [name],
        "default": name,
        "description": "Which computation of the image runs; there is one choice.",
    }


def inputspec_document(n_sites: int = 3, n_subjects: int = 4) -> list[dict[str, Any]]:
    """Return inputspec.json: inputs of the demonstration of `n_sites` sites, one object each.

    Four subjects a site show that the machinery works; their maps are noise, hence
    ``accept_low_quality``.
    """
    # Every site has the owner's inputs, because COINSTAC's simulator passes them on per site.
    common: dict[str, Any] = {
        "epsilon": 8,
        "delta": 1e-5,
        "n_components": 3,
        "mask": "MNI152-10mm",
        "n_basis": 100,
        "n_rounds": 10,
        "min_timepoints": 30,
        "standardize": "demean",
        "accept_low_quality": True,
    }
    sites = []
    for site in range(n_sites):
        first = site * n_subjects + 1
        files = [f"sub-{i:03d}_bold.nii.gz" for i in range(first, first + n_subjects)]
        sites.append({n: {"value": v} for n, v in {"data": files, **common}.items()})
    return sites


def generated(root: Path) -> tuple[Generated, ...]:
    """Return all generated files of the project folder `root`."""
    product = load(PRODUCT)
    rounds = rounds_table(product, {"epsilon": 1.0, "delta": 1e-5})
    inputs = _json(inputspec_document())
    pages = [
        Generated(path=name, text=with_rounds((root / name).read_text(encoding="utf-8"), rounds))
        for name in ("README.md", "docs/protocol.md")
    ]
    others = [name for name in names() if name != PRODUCT]
    pages += [
        Generated(
            path=path, text=with_settings(_read(root / path), own_settings(load(name).config))
        )
        for name in names()
        if (root / (path := f"docs/computations/{name}.md")).is_file()
    ]
    return (
        Generated(path="compspec.json", text=_json(compspec_document(product.config))),
        *(
            Generated(path=f"compspecs/{name}.json", text=_json(computation_document(name)))
            for name in others
        ),
        Generated(path="inputspec.json", text=inputs),
        Generated(path="test/inputspec.json", text=inputs),
        Generated(path="docs/config.md", text=config_page(product.config)),
        Generated(path="docs/errors.md", text=errors_page()),
        *pages,
    )


def stale(root: Path) -> list[str]:
    """Return the generated files below `root` that are missing or not what they should be."""
    return [file.path for file in generated(root) if _read(root / file.path) != file.text]


def write(root: Path) -> list[str]:
    """Write the generated files that are stale, and return their names."""
    written = []
    for file in generated(root):
        target = root / file.path
        if _read(target) != file.text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(file.text, encoding="utf-8")
            written.append(file.path)
    return written


def _owner_inputs(config: type[Config]) -> dict[str, Any]:
    hints = typing.get_type_hints(config)
    inputs: dict[str, Any] = {}
    for group in groups(config):
        for spec in dataclasses.fields(config):
            if spec.metadata["group"] == group:
                inputs[spec.name] = _owner_input(spec, hints[spec.name])
    return inputs


def _owner_input(spec: Field[Any], hint: object) -> dict[str, Any]:
    meta = spec.metadata
    widget: dict[str, Any] = {"label": meta["label"], "source": "owner", "group": meta["group"]}
    if values := choices(hint):
        widget |= {"type": "select", "values": list(values)}
    elif hint is bool:
        widget["type"] = "boolean"
    elif hint in (int, float):
        widget["type"] = "number"
        widget |= {k: meta[v] for k, v in (("min", "low"), ("max", "high")) if meta[v] is not None}
    else:
        widget["type"] = "string"
    # A form has no place for a unit but the label.
    if meta["unit"]:
        widget["label"] += f" ({meta['unit']})"
    if meta["help"]:
        widget["description"] = widget["tooltip"] = meta["help"]
    else:
        widget["description"] = meta["label"]
    if spec.default is not MISSING:
        widget["default"] = spec.default
    return widget


def _table(label: str, items: dict[str, str]) -> dict[str, Any]:
    return {
        "type": "object",
        "label": label,
        "items": {name: {"label": text} for name, text in items.items()},
    }


def _json(document: object) -> str:
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
