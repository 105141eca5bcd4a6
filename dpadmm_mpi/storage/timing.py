"""What is timed: the datasets that may differ between layouts, by name."""

from dpadmm_mpi.methods.measures import Layout, Quantity

COMPUTE, WAIT, BYTES = "timing/compute_seconds", "timing/wait_seconds", "timing/bytes_sent"
CONSENSUS_BYTES = "timing/consensus_bytes_sent"

TIMING: Layout = {
    COMPUTE: Quantity(
        ("node",),
        "local steps, since the row before: of the node's rank, shared over its nodes in proportion to their records, and over "
        "the runs that go side by side",
        {"units": "s"},
    ),
    WAIT: Quantity(
        ("node",), "waiting for neighbours of the node's rank, since the row before, shared over the runs", {"units": "s"}
    ),
    BYTES: Quantity(("node",), "bytes of the node's vectors to other ranks, since the row before", {"units": "byte"}),
}

CONSENSUS_TIMING: Layout = {
    CONSENSUS_BYTES: Quantity(
        ("node",), "bytes of the node's vectors to other ranks, since the consensus row before", {"units": "byte"}
    )
}
