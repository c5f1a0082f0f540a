"""compspec.json of every computation: the form that COINSTAC's application shows its owner."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any, Final

from cape.computations import about, load, names
from cape.engines.coinstac.display import COMPONENT, MAPS_SUMMARY, SUMMARY
from cape.engines.coinstac.form import has_input, shown_if
from cape.engines.coinstac.site import EXPERT
from cape.engines.setting_texts import Text, default_text, groups, texts_of, values_text
from cape.errors import ConfigError
from cape.settings.config import PRODUCT, VERSION, Config
from cape.settings.option import choices
from cape.settings.wings import PAPERS, WINGS

# Without a tag; COINSTAC's application shows logs of containers whose image starts with coinstac.
IMAGE_NAME: Final = "coinstac-cape"
# Of an image that COINSTAC pulls; it appends ``:latest`` itself, so a tag would be a second one.
PUBLISHED: Final = re.compile(
    r"([a-z0-9.-]+(:\d{1,5})?/)?([a-z0-9]+([._-]+[a-z0-9]+)*/)*coinstac[a-z0-9]*([._-]+[a-z0-9]+)*"
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
    "extensions": [["nii", "gz", "img", "hdr", "npy", "npz", "mat", "csv", "tsv", "json", "toml"]],
    "description": "One 4-D image or one matrix per subject, or a manifest with all files it "
    "names; a mask or an atlas if the settings say 'file'; your site-policy.toml, if you have one. "
    "No two files of the same name.",
    "source": "member",
}
_POLICY: Final[dict[str, Any]] = {
    "label": "Policy of this site (optional)",
    "type": "files",
    "items": ["policy"],
    "extensions": [["toml"]],
    "description": "site-policy.toml: what this site allows; without one, the shipped policy "
    "(cape policy prints it).",
    "source": "member",
}
_EXPERT: Final[dict[str, Any]] = {
    "label": "Show all settings",
    "type": "boolean",
    "default": False,
    "description": "Those that few runs change are hidden.",
    "tooltip": "A hidden setting keeps its value, also one that was changed before it was hidden.",
    "source": "owner",
}
# First in the form and in no group, because the application shows a group as a closed accordion
ASKED_FIRST: Final = ("epsilon", "delta", "n_components", "n_sites")


def compspec_document(
    config: type[Config],
    *,
    title: str = TITLE,
    image: str = IMAGE_NAME,
    description: str = DESCRIPTION,
    chosen: str = "",
) -> dict[str, Any]:
    """Return compspec.json of `chosen`, ``""`` for the product."""
    owner = _owner_inputs(config)
    maps = "n_components" in owner
    inputs: dict[str, Any] = {name: owner.pop(name) for name in ASKED_FIRST if name in owner}
    # The image has all computations; a form with one choice says which one it starts.
    inputs |= {"computation": _choice(chosen or PRODUCT), "data": dict(_DATA)}
    inputs |= {"policy": dict(_POLICY), EXPERT: dict(_EXPERT), **owner}
    # The app sorts by this number, not by the order in the file.
    for order, (name, spec) in enumerate(inputs.items()):
        spec["order"] = order
        if name in ASKED_FIRST:
            del spec["group"]
    return {
        "meta": {
            "id": f"coinstac-{chosen}" if chosen else IMAGE_NAME,
            "name": title,
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
                        {"source": "components", "subtables": "by-key"},
                    ],
                },
            ],
            "input": inputs,
            "output": {
                "summary": _table("Global summary", {**SUMMARY, **(MAPS_SUMMARY if maps else {})}),
                # Names of columns come with the tables of a run.
                "components": _table(
                    "Global components" if maps else "Global table", COMPONENT if maps else {}
                ),
            },
        },
    }


def image_of(computation: str, image: str = IMAGE_NAME) -> str:
    # The image leaves the papers' wing out; one that keeps it has a name of its own.
    return f"{image}-papers" if computation in WINGS[PAPERS].computations else image


def compspec_of(name: str, image: str = IMAGE_NAME) -> dict[str, Any]:
    """Return the compspec.json that starts a computation of the image."""
    if name == PRODUCT:
        return compspec_document(load(name).config, image=image)
    # The docstring of its module describes it to people.
    title, first = about(name)
    return compspec_document(
        load(name).config,
        title=f"{name}: {title}",
        image=image_of(name, image),
        description=first,
        chosen=name,
    )


def published(folder: Path, image: str) -> list[str]:
    """Write a compspec of every computation for an image of another name; returns their paths.

    ConfigError E011 for a name that COINSTAC's application cannot pull or nobody would know.
    """
    name = image.removesuffix(":latest")
    if not PUBLISHED.fullmatch(name):
        raise ConfigError(
            "E011",
            setting="image",
            got=image,
            allowed="NAME or REGISTRY/.../NAME in lower case without a tag, NAME from coinstac on",
            do="push it as :latest, which is what COINSTAC pulls.",
        )
    paths = []
    for computation in names():
        path = folder / f"{computation}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_json(compspec_of(computation, name)), encoding="utf-8")
        paths.append(str(path))
    return paths


def _choice(name: str) -> dict[str, Any]:
    return {
        "label": "Computation",
        "source": "owner",
        "type": "select",
        "values": [name],
        "default": name,
        "description": "Which computation of the image runs; there is one choice.",
        "tooltip": "The image has several computations, and this says which one a run is.  In "
        f'settings.toml: computation = "{name}".',
    }


def _owner_inputs(config: type[Config]) -> dict[str, Any]:
    hints = typing.get_type_hints(config)
    inputs: dict[str, Any] = {}
    texts, conditions = texts_of(config), shown_if(config)
    for group in groups(config):
        for spec in dataclasses.fields(config):
            if spec.metadata["group"] == group and has_input(spec, hints):
                widget = _owner_input(spec, hints[spec.name], texts[spec.name])
                if (condition := conditions[spec.name]) is not None:
                    variable, value = condition
                    # Hidden, an input keeps its value.
                    widget["conditional"] = {"variable": variable, "value": value}
                inputs[spec.name] = widget
    return inputs


def _owner_input(spec: Field[Any], hint: object, text: Text) -> dict[str, Any]:
    meta = spec.metadata
    widget: dict[str, Any] = {"label": text.label, "source": "owner", "group": meta["group"]}
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
    if text.unit:
        widget["label"] += f" ({text.unit})"
    # Under the label one sentence; all there is to say behind the sign beside it.
    widget["description"] = re.split(r"(?<=\.)  ", text.help or text.label)[0]
    default = f"Default: {default_text(spec.default)}.  " if spec.default is not MISSING else ""
    said = f"{text.help}  " if text.help else ""
    allowed = f"Allowed: {values_text(spec, hint, text.unit)}."
    tooltip = f"{said}{allowed}  {default}In settings.toml: {spec.name}."
    widget["tooltip"] = tooltip.replace("`", "")
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
