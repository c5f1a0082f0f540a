"""Words of numpy, nibabel, scipy and Python reach nobody: errors of files are told in our own."""

import ast
from pathlib import Path

import pytest

from cape.errors import ConfigError
from cape.planning.consortium_folder import read_file
from cape.site.policy import load_policy

CAPE = Path(__file__).parents[2] / "cape"
ROOMS = ("cli", "data", "engines", "planning", "python", "report", "simulation", "site", "space")
# Whose text says what to correct, or is ours
MAY = {
    "cli/__init__.py": "an `OSError`, the system's",
    "data/tables.py": "which rule of csv a line breaks",
    "data/reading.py": "nilearn, of which columns its tables lack",
    "data/matrices.py": "looked into, not told",
    "data/label_table.py": "an `UnusableFile`",
    "data/pipeline.py": "a mistake of ours, which people are asked to report",
}
# What these say is ours, or the system's: of them alone the text may be passed on.
OURS = {
    "CapeError", "ConfigError", "DataError", "MessageError", "StateLostError", "StoppedError",
    "PrivacyBudgetError", "UnusableFile", "FoundError", "TOMLDecodeError", "OSError",
    "FileNotFoundError", "PermissionError",
}  # fmt: skip


def told(tree: ast.AST) -> list[int]:
    """Return the lines where the text of a caught error of another kind is passed on."""
    lines = []
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if {ast.unparse(kind).split(".")[-1] for kind in kinds if kind} <= OURS:
            continue
        for node in ast.walk(handler):
            in_text = isinstance(node, ast.FormattedValue)
            in_str = isinstance(node, ast.Call) and ast.unparse(node.func) in ("str", "repr")
            value = node.value if in_text else node.args[0] if in_str and node.args else None
            if isinstance(value, ast.Name) and value.id == handler.name:
                lines.append(node.lineno)
    return lines


def test_no_text_of_a_library_is_passed_on() -> None:
    found = {
        str(path.relative_to(CAPE)): lines
        for room in ROOMS
        for path in sorted((CAPE / room).rglob("*.py"))
        if (lines := told(ast.parse(path.read_text())))
    }
    assert {name: lines for name, lines in found.items() if name not in MAY} == {}


@pytest.mark.parametrize("content", [b"epsilon = \xff", b"a = " + b"[" * 5000])
def test_a_file_of_settings_that_is_no_text_is_told_in_our_words(content, tmp_path) -> None:
    """`'utf-8' codec can't decode byte 0xff in position 10` was what the owner read."""
    path = tmp_path / "settings.toml"
    path.write_bytes(content)
    for read, code in ((read_file, "E014"), (load_policy, "E268")):
        with pytest.raises(ConfigError, match=code) as caught:
            read(path)
        assert caught.value.detail.endswith(": not UTF-8, or nested too deeply")
    path.write_text("epsilon = = 1\n")
    with pytest.raises(ConfigError, match="E014") as caught:
        read_file(path)
    assert "(at line 1, column 11)" in caught.value.detail
