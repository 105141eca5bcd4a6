"""Result files written by hand, without the recorder: what the readers must cope with."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

CONFIG = 'name = "{name}"\nruns = 4\n\n[algorithm]\nmethod = "{method}"\n\n[privacy]\nepsilon = 0.5\n'


def star_file(
    path: Path,
    name: str = "PS-ADMM",
    *,
    method: str = "ps-admm",
    sound: float = 40.0,
    nodes: int = 5,
    runs: int = 4,
    rows: int = 31,
    extra: bool = False,
    gap: bool = True,
) -> Path:
    """A file of the star family: other accounts, no KKT residual, a hub that is one node more than /node has."""
    t = np.arange(rows)
    rng = np.random.default_rng(5)
    loss = 0.3 + 0.4 * np.exp(-t / 8) + 0.01 * rng.standard_normal((runs, rows))
    growth = np.sqrt(t / t[-1])
    with h5py.File(path, "w") as file:
        file.attrs.update({
            "format": "dpadmm_mpi", "format_version": 1, "software": "dpadmm-mpi", "softwareVersion": "0.1.0",
            "softwareDependencies": "Python 3", "date": "2020-01-01T00:00:00+00:00", "name": name,
            "config": CONFIG.format(name=name, method=method), "config_sha256": "0", "notes": "a note", "complete": True,
        })  # fmt: skip
        scales = {"run": runs, "iteration": rows, "node": nodes, "graph/edge": nodes, "graph/end": 2, "feature": 3}
        scales |= {"data/record": 100 * nodes, "restart/number": 3}
        for scale, length in scales.items():
            file.create_dataset(scale, data=np.arange(length)).make_scale(scale.split("/")[-1])
        file.create_dataset("data/label", data=np.array([-1.0, 1.0])).make_scale("label")

        def put(name: str, values: Any, *dims: str, **attributes: Any) -> None:
            file.create_dataset(name, data=values)
            for axis, dim in enumerate(dims):
                file[name].dims[axis].attach_scale(file[dim])
            file[name].attrs.update(attributes)

        over_runs = ("run", "iteration")
        put("loss", loss, *over_runs)
        put("node_loss", loss[:, :, None] + 0.02 * np.arange(nodes), *over_runs, "node")
        put("objective", 2 * loss, *over_runs)
        if gap:
            put("objective_gap", 2 * loss - 0.5, *over_runs)
        put("consensus_error", np.exp(-t / 5) + np.zeros_like(loss), *over_runs)
        put("test_error", loss / 3, *over_runs)
        relation = "replace one record of one provider"
        for account, total, proven in (("epsilon_paper", 0.5, False), ("epsilon_sound", sound, True)):
            about = {"theorem": f"theorem of {account}", "proven": proven, "neighbouring_relation": relation, "delta": 1e-3}
            put(f"privacy/{account}", total * growth, "iteration", **about)
            put(f"privacy/node_{account}", np.outer(total * growth, np.ones(nodes)), "iteration", "node", **about)
        put("graph/edges", np.array([(i, nodes) for i in range(nodes)]), "graph/edge", "graph/end")
        put("data/sizes", np.full(nodes, 100), "node")
        put("data/node_of_record", np.repeat(np.arange(nodes), 100), "data/record")
        file["data"].attrs["source"] = "handmade"
        put("data/label_counts", np.tile([70, 30], (nodes, 1)), "node", "data/label")
        put("data/label_distance", np.zeros(nodes), "node")
        put("timing/owner", np.arange(nodes) % 2, "node")
        for seconds in ("compute_seconds", "wait_seconds", "bytes_sent"):
            put(f"timing/{seconds}", np.ones((runs, rows, nodes)), *over_runs, "node")
        put("restart/state", np.zeros((runs, 3)), "run", "restart/number", fields='{"primal": [3]}')
        file["timing"].attrs.update({"ranks": 2, "hosts": ["a", "b"], "mpi": "none", "seconds": 1.5})
        if extra:
            put("gradient_norm", loss, *over_runs)
            about = {"theorem": "somebody's", "proven": False, "neighbouring_relation": relation}
            put("privacy/moments", growth, "iteration", **about)
            put("privacy/node_moments", np.outer(growth, np.ones(nodes)), "iteration", "node", **about)
    return path
