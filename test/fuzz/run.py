"""Coverage-guided fuzzing of all targets with atheris (libFuzzer), each in a process of its own.

``python test/fuzz/run.py --seconds 60``          every target for a minute
``python test/fuzz/run.py --only image,message``  some of them
``python test/fuzz/run.py --corpus DIR``          keep what was found interesting

A finding ends the target and is printed with the bytes that lead to it (base64); so does an input
that takes over `LONGEST` seconds, or more memory than `MOST_MEMORY`.
"""

import argparse
import base64
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LONGEST = 10
"""Seconds for one input: the slowest honest one takes a tenth of a second."""
MOST_MEMORY = 1024
"""Megabytes of a target's process; libraries alone take a quarter of it."""
LONGEST_INPUT = 65_536


def child(name: str, arguments: list[str]) -> None:
    """Fuzz one target in this process until libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=["cape", "targets", "zipfile", "tomllib", "csv"]):
        import targets
    atheris.Setup([name, *arguments], lambda data: targets.attempt(name, data))
    atheris.Fuzz()


def fuzz(name: str, seconds: int, corpus: Path, found: Path) -> tuple[int, str]:
    """Return (executions, finding) of one target; the finding is empty if there was none."""
    import targets

    seeds = corpus / name
    seeds.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(targets.TARGETS[name].seeds):
        (seeds / f"seed-{i:03d}").write_bytes(seed[:LONGEST_INPUT])
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE, HERE.parent))),
        "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    done = subprocess.run(
        [
            sys.executable, __file__, "--child", name, f"-max_total_time={seconds}",
            f"-timeout={LONGEST}", f"-rss_limit_mb={MOST_MEMORY}", f"-max_len={LONGEST_INPUT}",
            f"-artifact_prefix={found}/{name}-", "-print_final_stats=1", str(seeds),
        ],
        env=environment, cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    counted = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
    executions = int(counted.group(1)) if counted else 0
    if done.returncode == 0 and executions > 0:
        return executions, ""
    inputs = [
        f"{path.name}: {base64.b64encode(path.read_bytes())[:400].decode()}"
        for path in sorted(found.glob(f"{name}-*"))
    ]
    told = re.search(r"=== Uncaught Python exception: ===(.*?)^==", text, re.DOTALL | re.MULTILINE)
    return executions, "\n".join([told.group(1) if told else text[-1500:], *inputs, ""])


def main() -> int:
    """Fuzz the targets one after the other; returns 1 if there was a finding."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3:])
        return 0
    sys.path[:0] = [str(ROOT), str(HERE), str(HERE.parent)]  # cape, targets, support
    import targets

    parser = argparse.ArgumentParser(description="Fuzz every decoder and reader of files.")
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("--only", default="", help="names of targets, separated by commas")
    parser.add_argument("--corpus", type=Path, help="folder of interesting inputs, kept")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(targets.TARGETS)
    figures, bad = {}, 0
    with tempfile.TemporaryDirectory() as top:
        corpus, found = options.corpus or Path(top, "corpus"), Path(top, "found")
        found.mkdir()
        for name in names:
            executions, finding = fuzz(name, options.seconds, corpus, found)
            figures[name] = executions
            bad += bool(finding)
            verdict = "FINDING" if finding else "nothing found"
            sys.stdout.write(f"{name:12}{executions:>10} executions  {verdict}\n{finding}")
            sys.stdout.flush()
    total = sum(figures.values())
    sys.stdout.write(f"{len(names)} targets, {total} executions, {bad} findings\n")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        document = {"targets": figures, "executions": total, "findings": bad}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
