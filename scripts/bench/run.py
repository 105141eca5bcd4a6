"""All benchmarks: ratios against references measured in the same minutes on the same machine.

    dpadmm data fetch adult
    python scripts/bench/run.py [-o FILE.json] [--history FILE.jsonl] [--rounds 3] [NAME ...]

Each file beside this one that is named in BENCHMARKS says what it measures. Run it on a machine that does nothing else:
figures by the wall clock mean nothing otherwise, and the others little.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: one core

import argparse
import importlib
import json
from pathlib import Path

import history
from common import Row, machine

BENCHMARKS = (
    "solves", "problems", "methods", "figure", "ranks", "small_nodes", "million", "recording", "records", "startup", "cost",
    "audit", "accounts", "disropt_admm",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    parser.add_argument("--history", type=Path, help="append a line; exit with 1 if a figure is worse than before")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians are taken")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(BENCHMARKS)}; default: all")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(BENCHMARKS):
        parser.error(f"no benchmark is named {', '.join(sorted(unknown))}; choose from {', '.join(BENCHMARKS)}")

    figures = {"machine": machine(), "rounds": arguments.rounds, "rows": []}
    print(", ".join(f"{key} {value}" for key, value in figures["machine"].items()))
    table: list[Row] = []
    for name in arguments.names or BENCHMARKS:
        for row in importlib.import_module(name).rows(arguments.rounds):
            print(line(row), flush=True)
            table.append(row)
    figures["rows"] = [vars(row) | {"verdict": row.verdict} for row in table]
    if arguments.output:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")
    worse = history.add(arguments.history, table, figures["machine"]) if arguments.history else []
    for words in worse:
        print(f"worse than before: {words}")
    return 1 if worse else 0


def line(row: Row) -> str:
    return f"{row.benchmark:28}{row.figure:66}{row.value:>10,.4g}{row.target:>12}  {row.verdict}"


if __name__ == "__main__":
    raise SystemExit(main())
