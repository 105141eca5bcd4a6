"""Small configurations of the curated family, which several rooms test."""

from typing import Any

from support import Raw

PRIVATE = ("dp-admm", "dp-acc-admm")


def curated_config(method: str = "gl-admm", iterations: int = 30, **sections: Any) -> Raw:
    """Five uneven shards, quick; with other values in some sections."""
    base: Raw = {
        "name": method,
        "seed": 4,
        "iterations": iterations,
        "data": {"records": 150, "features": 5, "train": 120, "split": "uneven", "concentration": 4.0},
        "problem": {"lambda1": 0.01},
        "algorithm": {"method": method},
        "privacy": {"noise_std": 0.02} if method in PRIVATE else {},
        "record": {"trajectory": True},
    }
    for name, table in sections.items():
        base[name] = {**base.get(name, {}), **table} if isinstance(table, dict) else table
    return base
