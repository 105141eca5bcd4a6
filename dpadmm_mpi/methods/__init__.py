"""The methods: `base` says what every family offers, and each family has a folder of its own.

Mathematics and plans; no messages and no files.
"""

# ruff: noqa: I001  (families enter the registry in the order in which they are listed to people)
from dpadmm_mpi.config.ranges import Between, OneOf, Whole
from dpadmm_mpi.methods.base import Config, Method, Plan, fingerprint, make_plan, methods, to_toml
from dpadmm_mpi.methods.decentralised.algorithm import DataNode, Node, State
from dpadmm_mpi.methods.decentralised.method import Admm, Decentralised, MAdmm, MRAdmm, RAdmm
from dpadmm_mpi.methods.star.method import Star
from dpadmm_mpi.methods.curated.method import Curated
from dpadmm_mpi.methods.experiment import experiment, parse
from dpadmm_mpi.methods.metrics import Metric, NodeMetric, Observation, metrics

__all__ = [
    "Admm",
    "Between",
    "Config",
    "Curated",
    "DataNode",
    "Decentralised",
    "MAdmm",
    "MRAdmm",
    "Method",
    "Metric",
    "Node",
    "NodeMetric",
    "Observation",
    "OneOf",
    "Plan",
    "RAdmm",
    "Star",
    "State",
    "Whole",
    "experiment",
    "fingerprint",
    "make_plan",
    "methods",
    "metrics",
    "parse",
    "to_toml",
]
