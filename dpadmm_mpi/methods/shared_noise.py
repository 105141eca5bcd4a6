"""Noise that neighbours share, in every family that has some: what it is worth against whom (docs/mathematics.md, 3)."""

from collections.abc import Callable

import msgspec

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Known
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.privacy.correlated_noise import Worth
from dpadmm_mpi.privacy.noises import CorrelatedGaussian
from dpadmm_mpi.types import Array

CORRELATED = (
    "; given the noise of all others and the shared parts that the colluders know, a node's noise is normal with the variance "
    "noise_std^2 / [M^-1]_ii, M = I + edge_ratio^2 L of the graph without them"
)


def worth_of(noise: CorrelatedGaussian, topology: Topology) -> Worth:
    """Against those whom the configuration names."""
    named = [] if isinstance(noise.colluders, int) else noise.colluders
    if any(node >= topology.nodes for node in named) or len(set(named)) < len(named):
        raise InputError(f"privacy.colluders: found {named}; there are the nodes 0 to {topology.nodes - 1}, each once")
    found = noise.worth(topology.neighbours)
    assert found is not None
    return found


def against_eavesdropper(noise: CorrelatedGaussian, topology: Topology) -> Worth:
    """Who sees everything that is released, and knows no seed."""
    return worth_of(msgspec.structs.replace(noise, colluders=0), topology)


def holds_against_every_node(noise: CorrelatedGaussian) -> bool:
    """A single node knows the seeds of its edges; accounts without colluders are not about it."""
    return isinstance(noise.colluders, int) and noise.colluders > 0


def in_words(noise: CorrelatedGaussian, worth: Array, topology: Topology) -> str:
    """What it is worth, and whom one has to trust."""
    outside = against_eavesdropper(noise, topology).factor
    who = f"any {noise.colluders} of the nodes" if isinstance(noise.colluders, int) else f"the nodes {noise.colluders}"
    colluders = "" if noise.colluders in (0, []) else f" together with {who}"
    return (
        f"neighbours share noise by secret seeds: against an eavesdropper{colluders} it is worth {worth.min():.4g} to "
        f"{worth.max():.4g} times noise_std, against an eavesdropper alone {outside.min():.4g} to {outside.max():.4g} times; "
        "against more colluders than that (privacy.colluders) the accounts do not hold, and all seeds of a node together leave "
        "it noise_std"
    )


def recorded(
    noise: CorrelatedGaussian, worth: Array, topology: Topology, epsilon: Callable[[Array], Array], delta: float
) -> dict[str, Known]:
    """Its worth against those whom the accounts are about, and against an eavesdropper alone; epsilon is of a worth, (N,)."""
    outside = against_eavesdropper(noise, topology).factor
    words = "deviation of a node's noise, given that of all others, over noise_std: against"
    return {
        "privacy/worth": Known(worth, ("node",), f"{words} an eavesdropper and the colluders, who pool their seeds"),
        "privacy/eavesdropper_worth": Known(outside, ("node",), f"{words} an eavesdropper who knows no seed"),
        "privacy/eavesdropper_epsilon": Known(
            epsilon(outside), ("node",), f"epsilon at delta = {delta:g} at the end, against an eavesdropper who knows no seed"
        ),
    }
