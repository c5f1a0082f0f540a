"""compspec.json of every computation: the form that COINSTAC's application shows to the owner.

Version 2, for containers with a service; version 1 starts a process for every round.  The
application requires ``command`` of both parties although the service answers, so both ways work.
"""

import dataclasses
import json
import re
import typing
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any, Final

from cape.computations import about, load, names
from cape.engines.coinstac.display import COMPONENT, EFFECT_ROWS, MAPS_SUMMARY, SUMMARY
from cape.engines.coinstac.form import has_input, shown_if
from cape.engines.coinstac.site import EXPERT
from cape.engines.setting_texts import Text, default_text, groups, texts_of, values_text
from cape.settings.config import FRONT, VERSION, Config
from cape.settings.documents import parse_json
from cape.settings.option import choices, out_of_range
from cape.settings.wings import PAPERS, WINGS, require

# No tag.  COINSTAC's application shows logs of containers whose image name starts with coinstac.
IMAGE_NAME: Final = "coinstac-cape"
# Names of images that COINSTAC pulls: no tag, because it appends ``:latest``.
PUBLISHED: Final = re.compile(
    r"([a-z0-9.-]+(:\d{1,5})?/)?([a-z0-9]+([._-]+[a-z0-9]+)*/)*coinstac[a-z0-9]*([._-]+[a-z0-9]+)*"
)
ADDRESS: Final = re.compile(r"https?://[!-~]{1,500}")
# Common to all forms; `compspec_document` adds the computation and its settings.
_TEMPLATE: Final = Path(__file__).with_name("compspec.json")
# The files of a comparison
OF_COMPARISON: Final = (
    "participants.tsv with the columns and outcomes of your people, a row each, or results of "
    "GIFT.  For outcomes of images also one 4-D image per person and the public maps.  Your "
    "site-policy.toml, if you have one.  No two files of the same name."
)
# First in the form and without a group, because the application shows groups closed
ASKED_FIRST: Final = ("epsilon", "delta", "n_components", "n_sites")


def compspec_document(
    config: type[Config], name: str = FRONT, image: str = IMAGE_NAME
) -> dict[str, Any]:
    document: dict[str, Any] = parse_json(_TEMPLATE.read_text(encoding="utf-8"))
    meta, computation = document["meta"], document["computation"]
    meta["version"] = VERSION
    if name != FRONT:
        # The form shows the docstring of the computation's module.
        title, first = about(name)
        meta |= {"id": f"coinstac-{name}", "name": f"{name}: {title}", "description": first}
    computation["dockerImage"] = computation["remote"]["dockerImage"] = image
    # The image has all computations; a setting with one choice selects this one.
    fixed = computation["input"]
    tooltip = fixed["computation"]["tooltip"].format(name=name)
    # One choice is none; a hidden input keeps it.
    hidden = {"variable": EXPERT, "value": True}
    choice = {"values": [name], "default": name, "tooltip": tooltip, "conditional": hidden}
    fixed["computation"] |= choice
    owner = _owner_inputs(config)
    leading = config.SHOWN or ASKED_FIRST
    asked_first = {name: owner.pop(name) for name in leading if name in owner}
    computation["input"] = {**asked_first, **fixed, **owner}
    # The application sorts by this number, not by the order in the file.
    for order, spec in enumerate(computation["input"].values()):
        spec["order"] = order
    for spec in asked_first.values():
        del spec["group"]
    output = computation["output"]
    output["summary"]["items"] = _labels(SUMMARY)
    # Column names are known only in a run.
    if "n_components" in asked_first:
        output["summary"]["items"] |= _labels(MAPS_SUMMARY)
        output["components"] |= {"label": "Global components", "items": _labels(COMPONENT)}
    elif "formula" in asked_first:
        fixed["data"]["description"] = OF_COMPARISON
        output["components"] |= {"label": "Global effects", "items": _labels(EFFECT_ROWS)}
    return document


def image_name_of(computation: str, image: str = IMAGE_NAME) -> str:
    # The papers' computations need another image, with its own name.
    return f"{image}-papers" if computation in WINGS[PAPERS].computations else image


def compspec_of(name: str, image: str = IMAGE_NAME) -> dict[str, Any]:
    return compspec_document(load(name).config, name, image_name_of(name, image))


def published(image: str, repository: str = "", *, papers: bool) -> dict[str, str]:
    """Return the compspec of every computation, by its name, for an image of another name.

    `papers`: those of the papers' computations, and no others.  `repository`: the address of the
    image's source, which the form shows.
    ConfigError E011 for a name that COINSTAC's application cannot pull or that does not begin with
    coinstac, and for a wrong address.
    """
    name = image.removesuffix(":latest")
    if papers:
        require(PAPERS, "--papers")
    if not PUBLISHED.fullmatch(name):
        raise out_of_range(
            "image",
            image,
            "NAME or REGISTRY/.../NAME in lower case without a tag, NAME from coinstac on",
            "push it as :latest, which is what COINSTAC pulls.",
        )
    if repository and not ADDRESS.fullmatch(repository):
        allowed = "an address that begins with https:// or http://"
        raise out_of_range("repository", repository, allowed, "correct it.")
    texts = {}
    for computation in names():
        if (computation in WINGS[PAPERS].computations) != papers:
            continue
        document = compspec_of(computation, name)
        document["meta"]["repository"] = repository or document["meta"]["repository"]
        texts[computation] = json.dumps(document, indent=2) + "\n"
    return texts


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
                    # A hidden input keeps its value.
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
    # A form has no field for a unit: the label shows it.
    if text.unit:
        widget["label"] += f" ({text.unit})"
    # One sentence under the label; the full text behind the help sign.
    widget["description"] = re.split(r"(?<=\.)  ", text.help or text.label)[0]
    default = f"Default: {default_text(spec.default)}.  " if spec.default is not MISSING else ""
    said = f"{text.help}  " if text.help else ""
    allowed = f"Allowed: {values_text(spec, hint, text.unit)}."
    # Errors name a setting.
    tooltip = f"{said}{allowed}  {default}Errors say {spec.name}."
    widget["tooltip"] = tooltip.replace("`", "")
    if spec.default is not MISSING:
        widget["default"] = spec.default
    return widget


def _labels(items: dict[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"label": text} for name, text in items.items()}
