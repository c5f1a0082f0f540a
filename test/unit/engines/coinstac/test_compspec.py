"""compspec.json and inputspec.json: valid for COINSTAC, and what they start is what they say."""

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cape.cli import main
from cape.computations import configured, load, module_of, names
from cape.engines.coinstac import compspec
from cape.engines.coinstac.computation import run
from cape.engines.coinstac.display import EFFECT_ROWS
from cape.engines.coinstac.form import NOT_IN_COINSTAC
from cape.engines.flare.job import JobPlan, new_run, read_job, write_job
from cape.engines.neuroflame import author_files
from cape.errors import ConfigError
from cape.planning.consortium_folder import read_file
from cape.settings.config import FRONT, PRODUCT, Config
from cape.settings.option import choices
from cape.settings.question import parse_question
from cape.settings.wings import PAPERS, WINGS
from cape.site.places import SitePlaces
from cape.site.policy import SitePolicy

ROOT = Path(__file__).parents[4]
CONFIGS = [Config, load("capedjica").config]

TEXT = {"type": "string", "minLength": 1}
LISTED = {"type": "array", "minItems": 1}
WIDGETS = ["number", "boolean", "string", "select", "files"]


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    """Return the schema of an object without other properties."""
    rules = {"type": "object", "required": required, "additionalProperties": False}
    return {**rules, "properties": properties}


def if_then(name: str, value: str, then: dict[str, Any]) -> dict[str, Any]:
    return {"if": {"properties": {name: {"const": value}}}, "then": then}


# The rules by which COINSTAC accepts an upload, and those of its forms.
COMMAND = {"type": "array", "minItems": 1, "items": TEXT}
SIDE = {"command": COMMAND, "dockerImage": TEXT, "type": TEXT}
META = ["id", "name", "description", "repository", "version"]
INPUT = closed(
    ["type", "label", "description", "order", "source"],
    **dict.fromkeys(["label", "description", "tooltip", "group"], TEXT),
    values=LISTED,
    extensions=LISTED,
    min={"type": "number"},
    max={"type": "number"},
    type={"enum": WIDGETS},
    source={"enum": ["owner", "member"]},
    order={"type": "integer", "minimum": 0},
    default={"type": ["string", "number", "boolean"]},
    items={"type": "array"},
    conditional=closed(["variable", "value"], variable=TEXT, value={}),
)
INPUT["allOf"] = [
    if_then("type", "select", {"required": ["values"]}),
    if_then("source", "member", {"properties": {"type": {"const": "files"}}}),
]
SCHEMA = closed(
    ["meta", "computation"],
    meta=closed(
        META,
        **dict.fromkeys(META, TEXT),
        controller={"type": "string"},
        testData={"type": "string"},
        tags={"type": "array", "items": {"type": "string"}},
        compspecVersion={"type": "integer"},
        preprocess={"type": "boolean"},
    ),
    computation=closed(
        ["command", "dockerImage", "type", "display", "input", "output"],
        **SIDE,
        display={"type": "array"},
        output={"type": "object"},
        remote=closed(list(SIDE), **SIDE),
        input={"type": "object", "additionalProperties": INPUT},
    ),
)


def test_the_repository_of_a_form_is_an_address_and_the_publishers_where_one_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was an address of example.org, where nobody finds the code of what a hospital runs."""
    # COINSTAC's schema needs a text there; as long as there is no address, it says where to look.
    said = compspec.compspec_document(Config)["meta"]["repository"]
    place = said.partition(", in ")[2].rstrip(".")
    assert f"COPY --from=package /opt/package {place}\n" in (ROOT / "Dockerfile").read_text()
    words = ["compspec", "--image", "a.example/coinstac-x", "--out", str(tmp_path)]
    assert main(words) == 0
    assert "meta.repository in them is not your address" in capsys.readouterr().out
    words += ["--replace"]
    assert main([*words, "--repository", "https://a.example/x"]) == 0
    assert "not your address" not in capsys.readouterr().out
    for path in tmp_path.glob("*.json"):
        assert json.loads(path.read_text())["meta"]["repository"] == "https://a.example/x"
    assert main([*words, "--repository", "lab/x"]) == 2
    assert "repository=lab/x: allowed an address" in capsys.readouterr().err


def form_inputs(config: type[Config]) -> dict[str, Any]:
    inputs: dict[str, Any] = compspec.compspec_document(config)["computation"]["input"]
    return inputs


@pytest.mark.parametrize("config", CONFIGS)
def test_every_setting_that_matters_in_coinstac_is_an_input_and_comes_back_with_its_default(config):
    inputs = form_inputs(config)
    owner = {name: spec for name, spec in inputs.items() if spec["source"] == "owner"}
    settings = {spec.name for spec in dataclasses.fields(config)}
    assert set(owner) == (settings - set(NOT_IN_COINSTAC)) | {"computation", "expert"}
    assert settings >= set(NOT_IN_COINSTAC)
    assert set(inputs) - set(owner) == {"data", "policy"}
    assert [spec["order"] for spec in inputs.values()] == list(range(len(inputs)))
    defaults = {name: spec["default"] for name, spec in owner.items() if "default" in spec}
    assert set(owner) - set(defaults) == {"epsilon", "delta"}
    del defaults["computation"], defaults["expert"]
    form = json.loads(json.dumps({**defaults, "epsilon": 1.0, "delta": 1e-5}))
    assert config.from_input(form) == config.from_input({"epsilon": 1.0, "delta": 1e-5})
    with pytest.raises(ConfigError, match="epsilon"):
        config.from_input(defaults)


@pytest.mark.parametrize("config", CONFIGS)
def test_widgets_fit_the_types_of_the_settings(config: type[Config]) -> None:
    hints, inputs = typing.get_type_hints(config), form_inputs(config)
    for name in set(hints) & set(inputs):
        widget = inputs[name]
        if values := choices(hints[name]):
            assert (widget["type"], widget["values"]) == ("select", list(values))
            assert widget["default"] in values
        else:
            kind = {bool: "boolean", int: "number", float: "number", str: "string"}[hints[name]]
            assert widget["type"] == kind


def test_what_everybody_must_decide_comes_first_and_in_no_closed_group() -> None:
    inputs = form_inputs(CONFIGS[-1])
    assert list(inputs)[:4] == ["epsilon", "delta", "n_components", "n_sites"]
    grouped = [spec.get("group") for spec in inputs.values()]
    assert grouped[:8] == [None] * 8
    assert None not in grouped[8:]
    assert "computation" not in shown(inputs)  # one choice is none


def test_groups_of_settings_stay_together() -> None:
    order = [spec["group"] for spec in form_inputs(CONFIGS[-1]).values() if "group" in spec]
    seen = list(dict.fromkeys(order))
    assert order == sorted(order, key=seen.index)
    assert seen[0] == "Privacy"


@pytest.mark.parametrize("name", names())
def test_an_input_is_shown_where_its_condition_can_be_met_and_hidden_by_default(name: str) -> None:
    """The application compares one other input with one value, strictly."""
    inputs = compspec.compspec_of(name)["computation"]["input"]
    for one, spec in inputs.items():
        if "conditional" in spec:
            other = inputs[spec["conditional"]["variable"]]
            assert spec["conditional"]["value"] in other.get("values", (False, True)), one
    if name == FRONT:
        assert {"n_components", "mask"} <= shown(inputs)
        assert shown(inputs).isdisjoint({"private", "symmetry", "orientation", "atlas"})
        assert {"private", "symmetry", "mask"} <= shown(inputs, expert=True)


def test_a_comparison_asks_for_twelve_inputs() -> None:
    inputs = compspec.compspec_of("capecontrast")["computation"]["input"]
    assert [name for name in inputs if name in shown(inputs)] == [
        "epsilon", "delta", "n_sites", "variables", "formula", "ask", "outcomes", "public",
        "networks", "data", "policy", "expert",
    ]  # fmt: skip
    # Each text has an example that may be typed as it stands.
    typed = {"variables": "dx control/SZ/BD, age 18:90, sex F/M", "formula": "dx + age + sex",
             "ask": "dx", "outcomes": "hippocampus 2500:5500, log(wmh) .1:100", "public": "dx",
             "networks": "precuneus (default mode), IC02 (visual)"}  # fmt: skip
    for name, example in typed.items():
        assert example in inputs[name]["tooltip"]
    assert parse_question(**typed).asked[0].q == 2
    of_maps = load("capecontrast").config.from_input(
        {**typed, "outcomes": "domains", "epsilon": 1.0, "delta": 1e-5}
    )
    assert of_maps.question.measure.domains == ("default mode", "visual")
    assert inputs["computation"]["default"] == "capecontrast"  # a hidden input keeps it


def test_flare_and_neuroflame_take_the_settings_file_of_a_comparison(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(
        'computation = "capecontrast"\nepsilon = 4.0\ndelta = 1e-5\nn_sites = 4\n'
        'variables = "dx control/SZ, age 18:90"\nformula = "dx + I(age^2) + age"\n'
        'outcomes = \'"left hippo" 2500:5500, log(wmh) .1:100\'\npublic = "dx"\n'
    )
    given = read_file(tmp_path / "settings.toml")
    write_job(tmp_path / "job", JobPlan(run=new_run(), settings=given))
    parameters = json.loads(author_files.files(given)[author_files.PARAMETERS])
    asked = [configured(one)[1] for one in (given, read_job(tmp_path / "job").settings, parameters)]
    assert asked[0] == asked[1] == asked[2]


def shown(inputs: dict[str, Any], **chosen: object) -> set[str]:
    """Return what the application shows: it looks at the value of one input, hidden or not."""
    values = {name: spec.get("default") for name, spec in inputs.items()} | chosen
    conditions = {name: spec.get("conditional") for name, spec in inputs.items()}
    return {
        name
        for name, condition in conditions.items()
        if condition is None or values[condition["variable"]] == condition["value"]
    }


@pytest.mark.parametrize("name", names())
def test_a_form_shows_what_everybody_decides_and_more_when_asked(name: str) -> None:
    """Twenty-nine inputs stood at defaults, and nobody knew which of them mattered."""
    inputs = compspec.compspec_of(name)["computation"]["input"]
    assert len(shown(inputs)) <= 15
    assert len(shown(inputs, expert=True)) > 25


def test_inputs_say_what_they_are_for() -> None:
    """The form of a comparison asked for images, and spoke of maps."""
    inputs = compspec.compspec_of("capecontrast")["computation"]["input"]
    assert "participants.tsv" in inputs["data"]["description"]
    assert "maps" not in inputs["accept_low_quality"]["label"]
    for name in ("accept_low_quality", "orientation"):
        assert inputs[name]["description"] != inputs[name]["label"], name


@pytest.mark.parametrize("name", names())
def test_what_hangs_on_a_hidden_input_is_hidden_like_it(name: str) -> None:
    """The application would show it: a hidden input keeps the value it once was given."""
    inputs = compspec.compspec_of(name)["computation"]["input"]
    fields = {spec.name: spec for spec in dataclasses.fields(load(name).config)}
    children = 0
    for one in set(fields) & set(inputs):
        if (when := fields[one].metadata["when"]) is None:
            continue
        parent, value = when
        if parent not in shown(inputs):
            children += 1
            assert one not in shown(inputs, **{parent: value}), one
        else:
            assert one in shown(inputs, expert=True, **{parent: value}), one
    assert children or name != "paperdjica"


def test_a_setting_that_needs_another_one_names_a_setting_and_a_value_of_it() -> None:
    for config in (load(name).config for name in names()):
        hints = typing.get_type_hints(config)
        for spec in dataclasses.fields(config):
            if spec.metadata["when"] is not None:
                assert spec.metadata["when"][0] in hints, spec.name


@pytest.mark.parametrize("name", names())
def test_the_sign_beside_a_label_says_more_than_the_line_below_it(name: str) -> None:
    for one, spec in compspec.compspec_of(name)["computation"]["input"].items():
        if spec["source"] == "owner" and one != "expert":
            assert len(spec["tooltip"]) > len(spec["description"]), one
            # A form has no such file.
            assert "settings.toml" not in spec["tooltip"], one


def test_an_owner_who_reads_nothing_but_the_form_knows_what_it_asks() -> None:
    """One allowed an epsilon of 1000, which sites refuse, and did not say what a TR of 0 means."""
    inputs = compspec.compspec_of(FRONT)["computation"]["input"]
    limit = SitePolicy().max_run[0][0]
    for name, said in {
        "epsilon": f"Sites without a policy refuse more than {limit:g}.",
        "tr": "0: any.", "min_timepoints": "counts as zeros", "mask_hash": "sha256sum",
        "confound_strategy": "COINSTAC's image has it", "max_features": "are refused",
        "drop_first_volumes": "every run", "dvars_threshold": "is censored",
    }.items():  # fmt: skip
        assert said in inputs[name]["tooltip"].partition("Allowed:")[0], name


@pytest.mark.parametrize("name", names())
def test_a_computation_of_matrices_alone_asks_for_nothing_that_acts_on_images(name: str) -> None:
    inputs = compspec.compspec_of(name)["computation"]["input"]
    asked = {"space", "smoothing_fwhm", "resample", "mask", "atlas"} & set(inputs)
    assert len(asked) == (0 if inputs["feature_space"]["values"] == ["matrix"] else 5)


def test_both_sides_are_the_scripts_of_the_image() -> None:
    computation = compspec.compspec_document(Config)["computation"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    for side, script in ((computation, "local.py"), (computation["remote"], "remote.py")):
        assert side["command"] == ["python", f"/computation/{script}"]
        assert (ROOT / script).is_file()
        assert script in dockerfile
    assert computation["dockerImage"].startswith("coinstac")
    assert ":" not in computation["dockerImage"]
    assert "WORKDIR /computation" in dockerfile


@pytest.mark.parametrize("name", names())
def test_every_computation_has_a_compspec_that_chooses_it(name: str) -> None:
    document = compspec.compspec_of(name)
    jsonschema.validate(json.loads(json.dumps(document)), SCHEMA)
    inputs = document["computation"]["input"]
    # What the application lists a computation by; it was once the name of the last input.
    title = "Private group ICA" if name == FRONT else f"{name}: "
    assert document["meta"]["name"].startswith(title)
    assert inputs["computation"]["values"] == [name]
    defaults = {n: spec["default"] for n, spec in inputs.items() if "default" in spec}
    assert defaults.pop("expert") is False
    assert load(defaults.pop("computation")).name == name
    assert load(name).config.from_input({**defaults, "epsilon": 1.0, "delta": 1e-5})


@pytest.mark.parametrize("name", names())
def test_inputs_of_a_demonstration_are_valid_settings_for_three_sites(name: str) -> None:
    sites = inputspec(name)
    assert len(sites) == 3
    inputs = compspec.compspec_of(name)["computation"]["input"]
    settings = []
    for number, site in enumerate(sites):
        assert set(site) <= set(inputs)
        assert all(set(given) == {"value"} for given in site.values())
        folder = demonstration(name) / "test" / "input" / f"local{number}" / "simulatorRun"
        mapped = {*site["data"]["value"], *site["policy"]["value"]}
        assert {path.name for path in folder.iterdir()} == mapped
        own = {n: given["value"] for n, given in site.items() if inputs[n]["source"] == "owner"}
        assert own.pop("computation") == name
        settings.append(load(name).config.from_input(own))
    assert settings[0] == settings[1] == settings[2]


def demonstration(name: str) -> Path:
    return ROOT if name == FRONT else ROOT / "compspecs" / name


def inputspec(name: str) -> list[dict[str, Any]]:
    path = demonstration(name) / "test" / "inputspec.json"
    assert path.is_file(), f"{name} has no demonstration: docs/adding-a-computation.md, step 7"
    listed: list[dict[str, Any]] = json.loads(path.read_text())
    return listed


@pytest.mark.long
@pytest.mark.parametrize("name", names())
def test_a_demonstration_runs_as_its_inputspec_says(name: str, tmp_path: Path, no_pages) -> None:
    """Forms without ``computation`` once ran capedjica, at the price of the run that was meant."""
    folder = demonstration(name)
    listed = inputspec(name)
    given = {
        f"local{k}": {n: entry["value"] for n, entry in site.items()}
        for k, site in enumerate(listed)
    }
    output = played(folder / "test" / "input", given, tmp_path)
    assert output["summary"]["computation"] == name
    declared = json.loads((folder / "compspec.json").read_text())["computation"]["output"]
    assert list(output["summary"]) == list(declared["summary"]["items"])
    for row in output["components"].values():
        if known := declared["components"]["items"]:
            assert list(row) == list(known)
        assert all(type(value) in (str, float) for value in row.values())


def played(data: Path, given: dict[str, Any], work: Path) -> dict[str, Any]:
    """Play COINSTAC's engine, which gives each site its own inputs; returns the final output."""
    caches: dict[str, Any] = {}

    def ask(role: str, party: str, message: Any, iteration: int) -> dict[str, Any]:
        base = data / party / "simulatorRun" if role == "local" else work / "base"
        state = {"baseDirectory": str(base), "clientId": party, "iteration": iteration}
        for place in ("output", "cache", "transfer"):
            (work / party / place).mkdir(parents=True, exist_ok=True)
            state[f"{place}Directory"] = str(work / party / place)
        request = {"input": message, "cache": caches.get(party, {}), "state": state}
        answer = run(role, request, SitePlaces())
        caches[party] = {**caches.get(party, {}), **answer["cache"]}
        return answer

    message: Any = None
    for iteration in range(1, 100):
        inbox = {
            site: ask("local", site, given[site] if message is None else message, iteration)
            for site in given
        }
        answer = ask("remote", "remote", {s: a["output"] for s, a in inbox.items()}, iteration)
        message = answer["output"]
        if answer["success"]:
            return message
    raise AssertionError("the run has no end")


@pytest.mark.parametrize("name", [n for n in names() if n != PRODUCT])
def test_a_form_that_does_not_name_its_computation_never_runs_another_one(name, tmp_path) -> None:
    """E013: the whole form of capecca without ``computation``, as the application may send it."""
    inputs = compspec.compspec_of(name)["computation"]["input"]
    form = {n: spec["default"] for n, spec in inputs.items() if "default" in spec}
    del form["computation"]
    listed = inputspec(name)[0]
    form |= {"epsilon": 1.0, "delta": 1e-5, "n_sites": 3}
    form |= {n: listed[n]["value"] for n in ("data", "policy")}
    with pytest.raises(ConfigError, match=rf"CAPE-E013 .*computation.*{name}"):
        played(demonstration(name) / "test" / "input", {"local0": form}, tmp_path)


@pytest.mark.parametrize("name", names())
def test_what_all_computations_have_chooses_none_of_them(name: str, tmp_path: Path) -> None:
    """epsilon, delta and n_sites alone once ran capedjica, whatever form they came from."""
    listed = inputspec(name)[0]
    form = {n: listed[n]["value"] for n in ("data", "policy")}
    form |= {"epsilon": 1.0, "delta": 1e-5, "n_sites": 3}
    with pytest.raises(
        ConfigError, match=r"CAPE-E013 .*computation.* capecca or capecontrast or capedjica or "
    ):
        played(demonstration(name) / "test" / "input", {"local0": form}, tmp_path)


def test_compspecs_for_an_image_of_ones_own_name_it_at_both_places(tmp_path: Path) -> None:
    """The application appends :latest: a tag in the compspec could never be pulled."""
    name = "registry.example.org:5000/lab/coinstac-cape"
    line = ["compspec", "--image", f"{name}:latest", "--out", str(tmp_path / "specs")]
    assert main(line) == 0
    ours = {path.stem for path in tmp_path.rglob("*.json")}
    assert main(line) == 2  # a form that was edited stays, as with all commands
    assert main([*line, "--replace"]) == 0
    # Those of the papers are for comparison: a consortium is not offered them beside ours.
    assert ours == set(names()) - set(WINGS[PAPERS].computations)
    assert main([*line, "--papers"]) == 0
    written = {path.stem: json.loads(path.read_text()) for path in tmp_path.rglob("*.json")}
    assert set(written) == set(names())
    for computation, document in written.items():
        own = compspec.compspec_of(computation)
        # The image leaves the papers' wing out: what lies there has an image of its own.
        more = "-papers" if "papers" in module_of(computation).__name__ else ""
        for half in (own["computation"], own["computation"]["remote"]):
            assert half["dockerImage"] == f"coinstac-cape{more}"
            half["dockerImage"] = name + more
        assert document == own
    assert written["djica"]["computation"]["dockerImage"] == f"{name}-papers"


@pytest.mark.parametrize("image", ["lab/cape", "coinstac-cape:0.1", "Coinstac-cape", "a b", "/x"])
def test_an_image_that_coinstac_does_not_list_or_cannot_pull_is_refused(tmp_path, image) -> None:
    assert main(["compspec", "--image", image, "--out", str(tmp_path / "specs")]) == 2
    assert not (tmp_path / "specs").exists()


def test_columns_of_effects_have_their_names_in_the_application() -> None:
    declared = compspec.compspec_of("capecontrast")["computation"]["output"]["components"]
    assert {name: item["label"] for name, item in declared["items"].items()} == EFFECT_ROWS
