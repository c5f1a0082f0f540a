"""A public name is defined in one module, so that a reader who searches for it finds one thing."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

CAPE = Path(__file__).parents[2] / "cape"

# Names with two homes -> why one name is right
EXPLAINED = {
    "Aggregator": "the party: a port of the protocol, and FLARE's object for it",
    "COMMANDS": "the command line reads it from each wing that adds commands",
    "Outcome": "of a run; of a person in a comparison, as its owner states it",
    "Question": "what a comparison asks, and a call of the aggregator over FLARE",
    "Site": "the party: a port of the protocol, and FLARE's object for it",
    "public_order": "of the people of a site, and of the columns of an epoch",
    "main": "the entry point of a program",
    "rerun": "`cape.rerun`, and the simulation behind it",
    "simulate": "`cape.simulate`, and the simulation behind it",
}


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield public names at the top of a module, except type variables."""
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names = [node.name]
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
                names = []
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                names = []
        yield from (name for name in names if not name.startswith("_"))


def twice(modules: dict[str, str]) -> dict[str, list[str]]:
    """Return name -> modules of names with two homes; `modules` is path -> text.

    Computations are alike on purpose: the fields of their tables (plan_run, verify, outcome) have
    the same names in all of them.
    """
    homes = defaultdict(list)
    for path, text in sorted(modules.items()):
        for name in set(defined(ast.parse(text))):
            homes[name].append(path)
    return {
        name: paths
        for name, paths in homes.items()
        if len(paths) > 1 and not all("computations/" in path for path in paths)
    }


def test_a_public_name_has_one_home_or_a_reason_for_two() -> None:
    modules = {str(path.relative_to(CAPE)): path.read_text("utf-8") for path in CAPE.rglob("*.py")}
    found = twice(modules)
    assert {name: paths for name, paths in found.items() if name not in EXPLAINED} == {}
    assert sorted(EXPLAINED) == sorted(found)


def test_the_search_sees_constants_functions_and_classes_but_no_type_variables() -> None:
    one = "T = TypeVar('T')\nLIMIT = 3\n_OWN = 1\ndef plan(): ...\nclass Roster: ...\n"
    two = "T = TypeVar('T')\nLIMIT: Final = 4\n_OWN = 1\nasync def plan(): ...\nclass Roster: ...\n"
    assert sorted(twice({"data/a.py": one, "site/b.py": two})) == ["LIMIT", "Roster", "plan"]
    assert twice({"computations/a.py": one, "papers/computations/b.py": two}) == {}
