"""What settings mean is said in one place: `resolve`."""

import ast
import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path

import cape
from cape.computations import load, names
from cape.settings.config import Config
from cape.settings.option import choices
from cape.settings.resolved import Cleaning, resolve


def test_auto_is_the_recipe_of_spatial_maps_for_images_only():
    def of(*, name: str = "capedjica", **given: object):
        base = {"epsilon": 1.0, "delta": 1e-5, **given}
        return resolve(load(name).config.from_input(base)).reading.cleaning

    brains = Cleaning(detrend="quadratic", standardize="floored", global_signal=True)
    plain = Cleaning(detrend="linear", standardize="variance", global_signal=False)
    assert of(name="capegica") == brains
    assert of(name="capegica", feature_space="atlas", atlas="atlas-a.nii.gz") == brains
    assert of(name="capegica", feature_space="matrix") == of() == plain
    every_other = Config(epsilon=1.0, delta=1e-5)
    assert resolve(every_other).reading.cleaning == plain
    chosen = of(name="capegica", detrend="linear", standardize="demean", global_signal=False)
    assert chosen == Cleaning(detrend="linear", standardize="demean", global_signal=False)
    assert of(global_signal=True).global_signal


PACKAGE = Path(cape.__file__).parent
# Numbers of which 0 leaves the choice to a computation, where another place than a plan could ask
ZERO_IS_AUTO = {"n_looks", "step_limit"}
# Functions that make the second step, from G, once all sites have joined
SECOND_STEP = {("computations/capedjica.py", "constants")}
# What the data decide at the end of a run, and no settings: it is a rule, not a word to resolve.
DECIDED_BY_DATA = {"symmetry"}


def words_to_resolve() -> set[str]:
    """Names of all settings that may say `auto`."""
    found = set(ZERO_IS_AUTO)
    for name in names():
        kind = load(name).config
        hints = typing.get_type_hints(kind)
        found |= {
            spec.name
            for spec in dataclasses.fields(kind)
            if spec.default == "auto" or "auto" in choices(hints[spec.name])
        }
    return found - DECIDED_BY_DATA


def reads(source: str, words: set[str]) -> Iterator[tuple[str, str]]:
    """Yield function and setting of every read of a raw word from something called settings."""
    for scope in ast.walk(ast.parse(source)):
        if not isinstance(scope, ast.FunctionDef):
            continue
        typed = {
            arg.arg
            for arg in (*scope.args.args, *scope.args.kwonlyargs)
            if arg.annotation is not None and ast.unparse(arg.annotation).endswith("Config")
        }
        for node in ast.walk(scope):
            if isinstance(node, ast.Attribute) and node.attr in words:
                owner = ast.unparse(node.value)
                if owner in typed or owner.rpartition(".")[2] in ("config", "settings"):
                    yield scope.name, node.attr
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
                name = node.args[1]
                if isinstance(name, ast.Constant) and name.value in words:
                    yield scope.name, str(name.value)


def test_nothing_after_the_settings_reads_a_word_that_has_to_be_resolved():
    words = words_to_resolve()
    assert {"basis", "detrend", "standardize", "global_signal", "bids_filter", "shares"} <= words
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith("settings/") or path.name in ("settings.py", "first_settings.py"):
            continue  # where they are declared, resolved and written
        found += [(place, *read) for read in reads(path.read_text(encoding="utf-8"), words)]
    assert {read[:2] for read in found} == SECOND_STEP, found


def test_a_read_of_a_raw_word_is_found_however_it_is_written():
    source = """
def a(config): return config.basis
def b(site): return site.config.detrend
def c(given: CapeGicaConfig): return given.basis
def d(config): return getattr(config, "basis")
def e(cleaning): return cleaning.detrend
"""
    assert sorted(name for name, _ in reads(source, {"basis", "detrend"})) == ["a", "b", "c", "d"]
