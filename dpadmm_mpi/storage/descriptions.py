"""The words with which a result file explains itself: its groups, its coordinates, its conventions."""

from dpadmm_mpi.methods.base import Config
from dpadmm_mpi.methods.references import cited

# Attributes that netCDF tools know, after the Climate and Forecast conventions: units, long_name, title, references.
CONVENTIONS = "CF-1.11"
NO_UNIT = "1"  # of a pure number

# Of what is known before a run and is no pure number.
UNITS = {"network/seconds": "s", "network/bytes": "byte", "network/node_bytes": "byte"}
GROUPS = {
    "algorithm": "what the method used in each iteration",
    "consensus": "after each consensus step at the end of a run",
    "data": "the records: where they come from, what was done to them, which node has them",
    "final": "the last values of each run",
    "graph": "the network",
    "network": "messages, nodes and edges as they were in each run, bytes and virtual time",
    "optimum": "the solution of the centralised problem",
    "privacy": "total privacy loss of everything released, by several accounts, and the noise",
    "problem": "the linear map of the problem",
    "restart": "what a run with more iterations begins with",
    "timing": "seconds, bytes, ranks and hosts: all that may differ between layouts",
}
# Coordinates: what their numbers count.
COORDINATES = {
    "arc": "number of the arc, one way along an edge, from 0",
    "class": "number of the class, from 0",
    "consensus/step": "recorded consensus steps, from 0",
    "constraint": "number of the constraint, from 0",
    "data/label": "label of a record",
    "data/record": "number of the record in its source, from 0",
    "feature": "number of the feature, from 0",
    "graph/edge": "number of the edge, from 0",
    "graph/end": "the two ends of an edge",
    "iteration": "recorded iterations, from 0, the starting point",
    "node": "number of the node, from 0",
    "privacy/curve_epsilon": "epsilon of the curve",
    "privacy/observer": "number of the node that observes, from 0",
    "privacy/renyi_order": "order of the Renyi divergence",
    "restart/number": "number within a state, from 0",
    "run": "number of the repetition, from 0",
}


def references(config: Config) -> str:
    """Where the method is written down, with the papers that this cites; what a method from outside inherits is not its own."""
    source = str(vars(type(config.algorithm.method)).get("source", ""))
    return "\n".join([source, *(f"{key} {paper}" for key, paper in cited(source).items())]) if source else "none"


def long_name(description: str) -> str:
    """A description without its details, which stand behind a semicolon or a colon."""
    return description.split(";")[0].split(": ")[0]
