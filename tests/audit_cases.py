"""Small private runs on a network whose losses come close to the accounts, for the tests of the audit."""

from typing import Any

from support import Raw


def small(method: str, perturbation: str, runs: int = 200, features: int = 1, **sections: Any) -> Raw:
    """Two nodes with few records: the bound is nearly reached. The smoothed hinge has the full slope on both sides."""
    raw: Raw = {
        "name": f"{method} {perturbation}",
        "seed": 21,
        "runs": runs,
        "iterations": 4,
        "data": {"sizes": [4, 9], "records": 30, "features": features},
        "network": {"graph": "path", "nodes": 2},
        "problem": {"C": 2.0, "rho": 1.0, "loss": "huber"},
        "algorithm": {"method": method, "eta": 1.0, "init": "zero"},
        "privacy": {"perturbation": perturbation, "alpha": 2.0},
        "record": {"trajectory": True},
    }
    changed = {name: raw[name] | table for name, table in sections.items()}
    return raw | {name: {key: value for key, value in table.items() if value is not None} for name, table in changed.items()}
