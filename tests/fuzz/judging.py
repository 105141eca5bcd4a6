"""What a damaged input may lead to: an answer, or a sentence and exit code 1 or 2. Nothing else."""

import contextlib
import io
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from dpadmm_mpi.cli import main

LINES, LETTERS = 3, 600
TIME = re.compile(r"\d{4}-\d\d-\d\dT")


@dataclass(frozen=True)
class Answer:
    """Of one command."""

    code: int
    output: str
    error: str


def say(words: tuple[str, ...], folder: Path) -> Answer:
    """`dpadmm WORDS` in a folder, in this process, by the same door as the command line's."""
    output, error, here, before = io.StringIO(), io.StringIO(), Path.cwd(), sys.argv
    os.chdir(folder)
    sys.argv = ["dpadmm", *words]
    code: object = 0
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(error):
            main.entry()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = before
        os.chdir(here)
    return Answer(code if isinstance(code, int) else 1, output.getvalue(), error.getvalue())


def wrong_with(answer: Answer, left: set[str]) -> str:
    """What is wrong with an answer; "" if nothing is. `left`: files that were not there before."""
    lines = [line for line in answer.error.splitlines() if not TIME.match(line)]  # without those of the log
    if answer.code not in (0, 1, 2, 75):
        return f"exit code {answer.code}"
    if "internal error" in answer.error or "Traceback" in answer.error:
        return "an internal error"
    if not all(line.isprintable() for line in (*answer.error.split("\n"), *answer.output.split("\n"))):
        return "something that is not printable"
    if answer.code in (1, 2) and (len(lines) > LINES or sum(map(len, lines)) > LETTERS):
        return f"{len(lines)} lines, {len(answer.error)} characters"
    if answer.code == 2 and not lines:
        return "exit code 2 without a word"
    if answer.code == 2 and left and "; the others are done" not in answer.error:  # of several variants
        return f"left {', '.join(sorted(left))}"
    return ""


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
