"""The methods: `base` says what every family offers, and each family has a folder of its own.

Mathematics and plans; no messages and no files.
"""

from typing import TYPE_CHECKING

from dpadmm_mpi.config.ranges import Between, OneOf, Whole
from dpadmm_mpi.methods.base import Config, Method, Plan, fingerprint, make_plan, methods, to_toml
from dpadmm_mpi.methods.metrics import Metric, NodeMetric, Observation, metrics
from dpadmm_mpi.registry import loaded_when_asked_for

if TYPE_CHECKING:
    from dpadmm_mpi.methods.curated.method import Curated
    from dpadmm_mpi.methods.decentralised.algorithm import DataNode, Node, State
    from dpadmm_mpi.methods.decentralised.method import Admm, Decentralised, MAdmm, MRAdmm, RAdmm
    from dpadmm_mpi.methods.experiment import parse
    from dpadmm_mpi.methods.gradient.method import Gradient
    from dpadmm_mpi.methods.one_shot.method import OneShot
    from dpadmm_mpi.methods.star.method import Star
else:  # a rank loads the family that it runs
    __getattr__ = loaded_when_asked_for(
        {
            "methods.curated.method": ("Curated",),
            "methods.decentralised.algorithm": ("DataNode", "Node", "State"),
            "methods.decentralised.method": ("Admm", "Decentralised", "MAdmm", "MRAdmm", "RAdmm"),
            "methods.experiment": ("parse",),
            "methods.gradient.method": ("Gradient",),
            "methods.one_shot.method": ("OneShot",),
            "methods.star.method": ("Star",),
        }
    )

__all__ = [
    "Admm",
    "Between",
    "Config",
    "Curated",
    "DataNode",
    "Decentralised",
    "Gradient",
    "MAdmm",
    "MRAdmm",
    "Method",
    "Metric",
    "Node",
    "NodeMetric",
    "Observation",
    "OneOf",
    "OneShot",
    "Plan",
    "RAdmm",
    "Star",
    "State",
    "Whole",
    "fingerprint",
    "make_plan",
    "methods",
    "metrics",
    "parse",
    "to_toml",
]
