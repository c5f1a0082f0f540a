"""The commands of a page of the documentation, and what it says that they print."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cape.cli import main

BLOCK = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PLAIN = {"", "python", "toml", "json", "text", "mermaid"}
"""Kinds of blocks that hold no commands; python blocks are doctests."""


@dataclass(frozen=True)
class Step:
    command: str
    exit_code: int
    expected: tuple[str, ...]
    slow: bool


def steps(page: Path) -> list[Step]:
    found: list[Step] = []
    for kind, mark, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind != "console":
            continue
        for line in text.splitlines():
            if line.startswith("$ "):
                command, _, code = line[2:].partition("  # exit ")
                found.append(Step(command, int(code or 0), (), slow="slow" in mark))
            else:
                last = found.pop()
                found.append(
                    Step(last.command, last.exit_code, (*last.expected, line), slow=last.slow)
                )
    return found


def plain(text: str) -> str:
    return " ".join(text.split())


def run(command: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    words = shlex.split(command)
    if words[0] == "cape":
        code = main(words[1:])
    else:
        program = [sys.executable, *words[1:]] if words[0] == "python" else words
        code = subprocess.run(program, check=False).returncode
    out, err = capfd.readouterr()
    return code, out + err
