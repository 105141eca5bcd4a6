"""The best settings of every method for every budget, and the configurations of the tuned frontiers with them.

    python scripts/frontier.py tune adult --part 0/2       # studies in build/frontier/, a file each; goes on where it was
    python scripts/frontier.py write adult                 # configs/frontier-tuned.toml from the studies
    python scripts/frontier.py average adult --runs 10     # averages that do not help are left out
    dpadmm reproduce frontier-tuned

Settings are chosen on the records of the figure, with another seed: another split into training and test records, another
graph, other noise. The choice itself costs privacy, which is not counted. Where it says "synthetic", no record is looked at.
"""

import argparse
import tomllib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from dpadmm_mpi.engine.loop import execute
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.tuning.search import search
from dpadmm_mpi.tuning.study import Study
from dpadmm_mpi.tuning.task import NEVER, RECORDS, Request, Task, Wish, at_the_end, average_helps, last_iterate, make_task
from dpadmm_mpi.tuning.tuners import tuners

HERE = Path(__file__).parent.parent
STUDIES = HERE / "build" / "frontier"
SEED = 8  # of the figure
SEARCHED = 1008  # of the searches
DELTA = 1e-5
C = 1750.0
REG, LAMBDA1 = 6.286e-5, 2.514e-5  # the same regulariser: reg = rho / (2 C); lambda1 = 2 reg / N


@dataclass(frozen=True)
class Curve:
    """A method with its noise: how it is searched, and what its paper has."""

    label: str
    method: str
    perturbation: str = ""
    problem: dict[str, Any] = field(default_factory=dict)
    algorithm: dict[str, Any] = field(default_factory=dict)  # that its paper has, or that is needed to begin with
    published: bool = True
    account: str = "epsilon"
    space: dict[str, Any] = field(default_factory=dict)
    trials: int = 12
    out_of_reach: tuple[str, ...] = ("0.1",)  # with the papers' penalties, no noise reaches it in 25 or 50 data steps
    on: str = RECORDS


GROWING = {"first": 1.04, "ratio": 1.04}
CURATED = {"lambda1": LAMBDA1, "regulariser": "l2", "map": "identity"}
LINEARISED = {"rho": 0.1, "eta": 4.0, "gamma": 1.0}
STEPS = {  # narrowed after a first search, with docs/baselines.md in mind
    "iterations": "40:200:log",
    "algorithm.step": "0.0015:0.012:log",
    "problem.rho": "0.02:5:log",
    "privacy.noise_std.ratio": 1.0,
}
MOMENTUM = {"algorithm.momentum": "0.6:0.9"}
WIDTHS = {"problem.width": [1.0, 0.5, 2.0]}
CURVES = (
    Curve("MR-ADMM", "mr-admm", "objective", algorithm={"eta": GROWING, "gamma": 0.5}, trials=20),
    Curve("M-ADMM (PP)", "m-admm", "penalty", algorithm={"eta": {"first": 1.0, "ratio": 1.02}}),
    Curve("DP-DGD", "dp-dgd", published=False, account="sound", space=STEPS | MOMENTUM),
    Curve("one-shot", "one-shot", "objective", algorithm={"eta": 0.1}, published=False, space={"iterations": 15}),
    Curve("gossip", "gossip", published=False, account="sound", space=STEPS | MOMENTUM | {"iterations": "90:400:log"}),
    Curve("central-objective", "central-objective", "objective", algorithm={"eta": 0.1}, published=False,
          space={"iterations": 1, "algorithm.eta": "0.002:2:log", "problem.rho": "0.005:5:log"}),
    Curve("MR-ADMM, Huber", "mr-admm", "objective", problem={"loss": "huber", "width": 1.0},
          algorithm={"eta": GROWING, "gamma": 0.5}, published=False, space=WIDTHS, trials=20),
    Curve("MR-ADMM, synthetic", "mr-admm", "objective", algorithm={"eta": GROWING, "gamma": 0.5}, published=False,
          on="synthetic", trials=10),
    Curve("R-ADMM", "r-admm", "objective", algorithm={"eta": 1.0, "gamma": 0.5}, trials=8),
    Curve("ADMM (DVP)", "admm", "dual", algorithm={"eta": 1.0}, trials=8, out_of_reach=("0.1", "0.5")),
    Curve("MR-ADMM, output noise", "mr-admm", "primal", algorithm={"eta": GROWING, "gamma": 0.5}, trials=8),
    Curve("DP gradient tracking", "dp-gradient-tracking", published=False, account="sound", space=STEPS, trials=6),
    Curve("DP-AccADMM", "dp-acc-admm", problem=CURATED, algorithm=LINEARISED, account="sound", trials=6),
    Curve("DP-ADMM", "dp-admm", problem=CURATED, algorithm=LINEARISED, account="sound", trials=6),
    Curve("PS-ADMM", "ps-admm", problem={"reg": REG}, algorithm={"rho": 0.1, "eta": 1.0, "inner_steps": 500}, account="sound",
          space={"iterations": "1:12:log", "algorithm.inner_steps": "5:100:log"}, trials=4),
)  # fmt: skip
FEW = ("MR-ADMM", "M-ADMM (PP)", "DP-DGD", "one-shot", "gossip", "central-objective")
CLASSES = ("R-ADMM", "ADMM (DVP)", "DP gradient tracking", *FEW)
HUB = ("ps-admm", "dp-admm", "dp-acc-admm")  # methods with a server or a curator
LITTLE_NOISE = 10.0  # from this epsilon on more steps and smaller penalties may pay


@dataclass(frozen=True)
class Figure:
    name: str
    data: dict[str, Any]
    epsilons: tuple[str, ...]
    curves: tuple[str, ...]
    share: float = 1.0  # of the trials
    problem: dict[str, Any] = field(default_factory=dict)
    classes: int = 2
    out_of_reach: dict[str, tuple[str, ...]] = field(default_factory=dict)  # where it is not the curve's own


FIGURES = {
    "adult": Figure("frontier-tuned", {"source": "adult", "train": 40000}, ("1", "0.5", "2", "0.1", "10"),
                    tuple(curve.label for curve in CURVES)),
    "a9a": Figure("frontier-a9a", {"source": "a9a", "train": 40000}, ("1", "0.1", "10"), FEW, share=0.5),
    "ijcnn1": Figure("frontier-ijcnn1", {"source": "ijcnn1", "train": 40000}, ("1", "0.1", "10"), FEW, share=0.5),
    "relationship": Figure("frontier-relationship", {"source": "adult-relationship", "train": 40000}, ("1", "0.1", "10"),
                           CLASSES, problem={"loss": "softmax"}, classes=6,
                           out_of_reach=dict.fromkeys(("R-ADMM", "M-ADMM (PP)", "ADMM (DVP)"), ("0.1", "1"))),
}  # fmt: skip


def curves_of(figure: Figure) -> list[Curve]:
    return [curve for curve in CURVES if curve.label in figure.curves]


def base_of(figure: Figure, seed: int) -> dict[str, Any]:
    return {
        "name": figure.name,
        "seed": seed,
        "runs": 10,
        "iterations": 50,
        "data": figure.data,
        "network": {"graph": "random", "nodes": 5},
        "problem": {"C": C, "rho": 0.22} | figure.problem,
        "privacy": {"delta": DELTA},
        "record": {"optimum": False},
    }


def published(curve: Curve, e: str) -> dict[str, Any]:
    """The variant with its paper's settings."""
    privacy = {"target": float(e), "target_account": curve.account}
    return {
        "name": f"{curve.label}, papers, epsilon {e}",
        **({"problem": curve.problem} if curve.problem else {}),
        "algorithm": {"method": curve.method, **curve.algorithm},
        "privacy": {**({"perturbation": curve.perturbation} if curve.perturbation else {}), **privacy},
    }


def task_of(figure: Figure, curve: Curve, e: str, runs: int) -> Task:
    base = base_of(figure, SEARCHED)
    one = published(curve, e)
    table = {**base, **one, "name": figure.name, "privacy": {**base["privacy"], **one["privacy"]}}
    if curve.method in HUB:  # which have a regulariser of their own in the place of C and rho
        table |= {"problem": curve.problem, "network": {"nodes": 5}}
    else:
        table["problem"] = {**base["problem"], **curve.problem}
    space: dict[str, Any] = dict(curve.space)
    if float(e) >= LITTLE_NOISE and curve.account == "epsilon" and "iterations" not in space:
        eta = "algorithm.eta.first" if isinstance(curve.algorithm["eta"], dict) else "algorithm.eta"
        space |= {"iterations": "1:30:log", eta: "0.01:3:log"}
    if float(e) >= LITTLE_NOISE and curve.method == "one-shot":
        space |= {"algorithm.eta": "0.002:2:log"}
    if float(e) < LITTLE_NOISE and curve.account == "epsilon" and figure.classes > 2:
        space |= penalties_of_classes(figure, curve, float(e))
    return make_task(
        Request(table), Wish(epsilon=float(e), delta=DELTA, methods=(curve.method,), runs=runs, on=curve.on, space=space)
    )


def penalties_of_classes(figure: Figure, curve: Curve, e: float) -> dict[str, str]:
    """From where the determinant term of one data step, (k - 1) ln(1 + C / (B mu k)), takes all of epsilon; few such steps."""
    alone = curve.method in ("one-shot", "central-objective")
    records = figure.data["train"] / (1 if curve.method == "central-objective" else 5)
    smallest = (1.0 - 1.0 / figure.classes) * C / (records * e)  # of mu, which is 2 eta, or 2 eta V with V about 2 neighbours
    low = smallest / (2.0 if alone else 4.0)
    key = "algorithm.eta.first" if isinstance(curve.algorithm["eta"], dict) else "algorithm.eta"
    return {key: f"{low:.3g}:{30.0 * low:.3g}:log"} | ({"iterations": "1:4:log"} if e < 1.0 and not alone else {})


def jobs(figure: Figure) -> Iterator[tuple[Curve, str, Path]]:
    for curve in curves_of(figure):
        for e in figure.epsilons:
            number = zlib.crc32(f"{curve.label} {e}".encode())
            yield curve, e, STUDIES / figure.name / f"{curve.method}-{e}-{number:08x}.jsonl"


def study_of(figure: Figure, curve: Curve, e: str, path: Path, runs: int) -> Study:
    trials = max(6, round(curve.trials * figure.share))
    return search(task_of(figure, curve, e, runs), tuners["tpe"](), trials, Serial(), path)


def has_papers(figure: Figure, curve: Curve, e: str) -> bool:
    return curve.published and e not in figure.out_of_reach.get(curve.label, curve.out_of_reach)


def papers_error(figure: Figure, curve: Curve, e: str, path: Path, runs: int) -> float:
    """Of the paper's settings, on the searched records: a search that has not found better ones keeps them."""
    if not has_papers(figure, curve, e):
        return float("inf")
    known = path.with_suffix(".papers")
    if not known.exists():
        table = {**base_of(figure, SEARCHED), "variant": [published(curve, e)]}
        result = execute(Request(table).config([("runs", runs), ("record.every", NEVER)]), Serial())
        assert result is not None
        known.write_text(repr(float(at_the_end(result, "test_error").mean())), encoding="utf-8")
    return float(known.read_text(encoding="utf-8"))


def tune(figure: Figure, part: str, runs: int, only: str) -> None:
    import time

    mine, parts = (int(each) for each in part.split("/"))
    for number, (curve, e, path) in enumerate(jobs(figure)):
        if number % parts != mine or only not in curve.label:
            continue
        begin = time.perf_counter()
        best = study_of(figure, curve, e, path, runs).best()
        papers = papers_error(figure, curve, e, path, runs)
        seconds = time.perf_counter() - begin
        print(f"{curve.label}, {e}: {best.value:.4f} (papers {papers:.4f}) in {seconds:.0f} s {best.settings}", flush=True)


HEAD = """\
# Every method with the best settings that were found for each epsilon, beside those of its paper where there is one.
# Found by {counted} trials of {runs} runs each in all (scripts/frontier.py), on the records themselves with the seed {seed}:
# another split, graph and noise. That choice costs privacy which is not counted; only "synthetic" has settings that were
# found without a record. Where no trial was better than the paper's settings there, those are kept.
"""


def write(figure: Figure, runs: int) -> None:
    base = base_of(figure, SEED)
    variants: list[dict[str, Any]] = [{"name": "non-private", "algorithm": {"method": "admm", "eta": 1.0}}]
    counted = 0
    for curve, e, path in jobs(figure):
        if has_papers(figure, curve, e):
            variants.append(published(curve, e))
        if path.exists():
            study = study_of(figure, curve, e, path, runs)
            counted += len(study.trials)
            kept = papers_error(figure, curve, e, path, runs) < (study.best().value or 0.0)
            variants.append({**published(curve, e), "name": tuned_name(curve, e)} if kept else tuned(curve, e, study))
    head = HEAD.format(counted=counted, runs=runs, seed=SEARCHED)
    (HERE / "configs" / f"{figure.name}.toml").write_text(head + tomli_w.dumps({**base, "variant": variants}), encoding="utf-8")


def tuned_name(curve: Curve, e: str) -> str:
    return f"{curve.label}, tuned, epsilon {e}" if curve.on == RECORDS else f"{curve.label}, epsilon {e}"


def tuned(curve: Curve, e: str, study: Study) -> dict[str, Any]:
    """A variant of the best trial."""
    one = published(curve, e)
    first = {"name": tuned_name(curve, e), "algorithm": {"method": curve.method}}
    made: dict[str, Any] = {**first, "problem": dict(one.get("problem", {})), "privacy": dict(one["privacy"])}
    for key, value in study.best().settings.items():
        section, _, name = key.partition(".")
        if name:
            made.setdefault(section, {})[name] = value
        else:
            made[key] = value
    if "gamma" in curve.algorithm and "gamma" not in made["algorithm"]:
        made["algorithm"]["gamma"] = curve.algorithm["gamma"]
    return {key: value for key, value in made.items() if value != {}}


def average(figure: Figure, runs: int) -> None:
    """Leave averages out that do not help where settings were searched: with the seed of the searches, by the tuner's rule."""
    path = HERE / "configs" / f"{figure.name}.toml"
    text = path.read_text(encoding="utf-8")
    table = tomllib.loads(text)
    for curve, e, _ in jobs(figure):
        found = [each for each in table["variant"] if each["name"] == tuned_name(curve, e)]
        if not found or found[0].get("release", {}).get("average", "none") == "none":
            continue
        variant, task = found[0], task_of(figure, curve, e, runs)
        result = execute(task.trial_config(task.methods[0], settings_of(variant)), Serial())
        assert result is not None
        helps = average_helps(result, task.metric)
        errors = [100 * float(values(result, task.metric).mean()) for values in (last_iterate, at_the_end)]
        print(f"{variant['name']}: last iterate {errors[0]:.2f} %, average {errors[1]:.2f} %, kept: {helps}", flush=True)
        if not helps:
            variant["release"]["average"] = "none"
    head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    path.write_text(head + tomli_w.dumps(table), encoding="utf-8")


def settings_of(variant: dict[str, Any]) -> list[tuple[str, Any]]:
    """What a variant sets, as dotted keys."""
    found = []
    for section, value in variant.items():
        if isinstance(value, dict):
            found += [(f"{section}.{key}", each) for key, each in value.items()]
        elif section != "name":
            found.append((section, value))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["tune", "write", "average"])
    parser.add_argument("figure", choices=list(FIGURES))
    parser.add_argument("--part", default="0/1", help="every n-th study from the k-th on, as 0/2")
    parser.add_argument("--runs", type=int, default=3, help="of a trial")
    parser.add_argument("--only", default="", help="curves whose name contains this")
    given = parser.parse_args()
    figure = FIGURES[given.figure]
    if given.what == "tune":
        tune(figure, given.part, given.runs, given.only)
    elif given.what == "write":
        write(figure, given.runs)
    else:
        average(figure, given.runs)


if __name__ == "__main__":
    main()
