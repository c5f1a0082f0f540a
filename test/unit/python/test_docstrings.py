"""Every public name says what it takes, gives and raises, with an example that runs.

Belongs to `cape/python/api.py`.
"""

import ast
import dataclasses
import doctest
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cape

NAMES = [name for name in cape.__all__ if name != "__version__"]
SETTINGS = {"n_components": 3, "n_rounds": 2, "min_timepoints": 40}
SITE_PY = Path(__file__).parents[3] / "packaging" / "site.py"


def sections(text: str) -> dict[str, str]:
    """Return title -> text of the sections of numpydoc."""
    parts = re.split(r"^(\w+)\n-+$", inspect.cleandoc(text), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def listed(section: str) -> set[str]:
    """Return the names at the left margin: "epsilon, delta : float" are two."""
    lines = [line for line in section.splitlines() if re.match(r"[\w*]", line)]
    return {
        name.strip(" *") for line in lines for name in line.partition(" :")[0].split(",")
    }  # fmt: skip


def asked(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self", "cls"}


def public_functions() -> Iterator[tuple[str, Any]]:
    """Yield functions, and methods with parameters of the classes of cape/python."""
    for name in NAMES:
        thing = getattr(cape, name)
        if not inspect.isclass(thing):
            yield name, thing
        elif thing.__module__.startswith("cape.python"):
            for method, function in vars(thing).items():
                if method[0] != "_" and inspect.isfunction(function) and asked(function):
                    yield f"{name}.{method}", function


@pytest.mark.parametrize(("name", "function"), list(public_functions()))
def test_a_function_names_all_it_takes_and_what_it_gives(name: str, function: Any) -> None:
    found = sections(function.__doc__)
    assert listed(found.get("Parameters", "")) >= asked(function)
    assert listed(found.get("Parameters", "")) <= asked(function)
    assert found["Returns"].strip()
    if "." not in name and asked(function):
        assert re.search("CAPE-E[0-9]{3}|settings are wrong", found["Raises"])


@pytest.mark.parametrize("name", [n for n in NAMES if inspect.isclass(getattr(cape, n))])
def test_a_class_names_what_it_is_made_of(name: str) -> None:
    kind = getattr(cape, name)
    found = sections(kind.__doc__)
    if not dataclasses.is_dataclass(kind):
        made_with = asked(kind.__init__) if "__init__" in vars(kind) else set()
        assert listed(found.get("Parameters", "")) == made_with
    elif kind.__module__.startswith("cape.python"):
        fields = {field.name for field in dataclasses.fields(kind)}
        assert listed(found["Attributes"]) == fields


def study(place: Path) -> None:
    """Write three sites of matrices with their settings."""
    rng = np.random.default_rng(2)
    for site in "abc":
        (place / site).mkdir(parents=True)
        for k in range(3):
            np.save(place / site / f"sub-{site}{k}.npy", rng.laplace(size=(12, 60)))
    lines = ['feature_space = "matrix"', 'computation = "capedjica"']
    lines += [f"{key} = {value}" for key, value in SETTINGS.items()]
    (place / "settings.toml").write_text("\n".join(lines), encoding="utf-8")


def a_table(rng: np.random.Generator) -> dict[str, Any]:
    patient = rng.random(200) < 0.5
    dx = np.where(patient, "SZ", "control")
    return {"dx": dx, "volume": 4.5 - 0.3 * patient + 0.3 * rng.standard_normal(200)}


@pytest.mark.filterwarnings("ignore::cape.errors.CapeWarning")
@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example_that_runs(name, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # no pages with pictures
    monkeypatch.chdir(tmp_path)
    study(tmp_path / "study")
    rng = np.random.default_rng(1)
    given = {
        "cape": cape,
        "np": np,
        "settings": SETTINGS,
        "sites": {s: [rng.laplace(size=(60, 12)) for _ in range(3)] for s in "abc"},
        "tables": {s: a_table(rng) for s in "abc"},
    }
    thing = getattr(cape, name)
    if name == "rerun":
        cape.simulate("study", out="finished", private=False)
    text = sections(thing.__doc__)["Examples"]
    test = doctest.DocTestParser().get_doctest(text, given, name, None, 0)
    assert test.examples
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)


def test_the_api_page_groups_every_name_and_has_errors_last() -> None:
    tree = ast.parse(SITE_PY.read_text(encoding="utf-8"))
    (groups,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "GROUPS"
    ]
    assert sorted(name for names in groups.values() for name in names) == sorted(NAMES)
    assert list(groups)[-1] == "Errors and warnings"
