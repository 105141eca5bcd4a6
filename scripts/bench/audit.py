"""`dpadmm audit` of 200 runs: against a plain script of its formula, and against the runs themselves.

Adult, 5 nodes of 8,000 records, d = 105, three data steps, and 20 nodes of 50 records, d = 10, ten data steps; MR-ADMM with
gamma noise in the objective and the default options. The script recovers the noise of every node, run and data step, and works
out the losses of the same flipped, stretched and erased records as the audit, with dense numpy and a factorised Hessian for
each. It searches for no neighbours, tests no noise and compares with no account; its records are in memory already.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import Row, medians, run
from figure import dense

from dpadmm_mpi.audit.exact import audit, read_run
from dpadmm_mpi.engine.loop import Manner, execute
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.storage.experiments import load

RUNS, CANDIDATES = 200, 20
COMMON: dict[str, Any] = {
    "runs": RUNS,
    "algorithm": {"method": "mr-admm", "eta": 1.0},
    "privacy": {"perturbation": "objective", "alpha": 1.0, "allow_unproven": True},
    "record": {"trajectory": True, "optimum": False},
}
SIZES: dict[str, dict[str, Any]] = {
    "Adult, 5 nodes": COMMON
    | {
        "iterations": 6,
        "data": {"source": "adult", "train": 40_000},
        "network": {"graph": "random", "nodes": 5},
        "problem": {"C": 1750.0, "rho": 0.22},
    },
    "20 small nodes": COMMON
    | {
        "iterations": 20,
        "data": {"source": "synthetic", "records": 1200, "train": 1000, "features": 10},
        "network": {"graph": "random", "nodes": 20},
        "problem": {"C": 2.0, "rho": 1.0},
    },
}


class PlainScript:
    """(runs, neighbours) of each node: the losses at the end."""

    def __init__(self, path: Path) -> None:
        self.result, plan, dataset = read_run(path)
        self.plan: Any = plan
        self.shards = [dense(dataset.loader.shard(dataset.address(i)).into_signed()) for i in range(plan.nodes)]

    def __call__(self) -> float:
        begin = time.process_time()
        self.losses()
        return time.process_time() - begin

    def losses(self) -> list[np.ndarray]:
        sent, neighbours = self.result["trajectory"], self.plan.topology.neighbours
        C, mu, eta, alpha = self.plan.releases.C, self.plan.ridge, 1.0, 1.0
        recycled = np.setdiff1d(np.arange(sent.shape[1]), self.plan.releases.data_steps)
        found = []
        for i, X in enumerate(self.shards):
            degree, w = len(neighbours[i]), C / len(X)
            chosen = X[np.argsort(-np.linalg.norm(X, axis=1), kind="stable")[:CANDIDATES]]
            norms = np.maximum(np.linalg.norm(chosen, axis=1, keepdims=True), 1e-300)
            old, new = np.tile(chosen, (3, 1)), np.concatenate([-chosen, -chosen / norms, 0.0 * chosen])
            total = np.zeros((len(sent), len(old)))
            for r, f in enumerate(sent):
                others = f[:, list(neighbours[i])].sum(axis=1)
                apart = degree * f[:, i] - others
                apart[recycled] = 0.0
                dual = eta * np.cumsum(apart, axis=0)  # 2 lambda_i(t) of (KKT)
                for t in self.plan.releases.data_steps:
                    s = 1.0 / (1.0 + np.exp(X @ f[t, i]))
                    pull = dual[t - 1] + eta * (2.0 * degree * f[t, i] - degree * f[t - 1, i] - others[t - 1])
                    e = w * (X.T @ s) - mu * f[t, i] - pull
                    weighted = np.sqrt(w * s * (1.0 - s))[:, None] * X
                    H = weighted.T @ weighted + (mu + 2.0 * eta * degree) * np.eye(X.shape[1])
                    by_old, by_new = (1.0 / (1.0 + np.exp(rows @ f[t, i])) for rows in (old, new))
                    v = w * (by_new[:, None] * new - by_old[:, None] * old)
                    a, b = w * by_new * (1.0 - by_new), -w * by_old * (1.0 - by_old)
                    from_old, from_new = np.linalg.solve(H, old.T).T, np.linalg.solve(H, new.T).T
                    oo, nn, no = (np.sum(p * q, axis=1) for p, q in ((from_old, old), (from_new, new), (from_new, old)))
                    total[r] += alpha * (np.linalg.norm(e + v, axis=1) - np.linalg.norm(e))
                    total[r] -= np.log((1.0 + a * nn) * (1.0 + b * oo) - a * b * no**2)
            found.append(total)
        return found


def rows(rounds: int) -> list[Row]:
    table = []
    for name, config in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "runs.h5"
            execute(load(config).configs[0], Serial(), path, manner=Manner(force=True))
            script = PlainScript(path)
            gap = max(
                float(np.abs(a - b[:, -1, : 3 * CANDIDATES]).max())
                for a, b in zip(script.losses(), audit(path).losses, strict=True)
            )
            if gap > 1e-8:
                raise RuntimeError(f"{name}: the plain script has other losses, by {gap:.1e}")

            def ours(path: Path = path) -> float:
                begin = time.process_time()
                audit(path)
                return time.process_time() - begin

            seconds = medians({"plain": script, "ours": ours, "run": lambda config=config: run(config)["loop_cpu"]}, rounds)
        text = f"audit of 200 runs, {name}"
        table.append(Row(text, "(a) plain numpy script : this package", seconds["plain"] / seconds["ours"], at_least=2.0))
        table.append(Row(text, "the audit : the loop of the runs", seconds["ours"] / seconds["run"]))
    return table
