"""`dpadmm run --selftest`: do the launched ranks reach each other, and do they hold the same things? Seconds, not a run."""

import hashlib
import platform
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

from dpadmm_mpi.errors import DpadmmError, RunError
from dpadmm_mpi.methods.base import Config, Plan, fingerprint, make_plan
from dpadmm_mpi.networks.graphs import build
from dpadmm_mpi.parallel.collective import agree, on_root
from dpadmm_mpi.parallel.owners import assign_owners
from dpadmm_mpi.parallel.transport import Transport
from dpadmm_mpi.showing import brief
from dpadmm_mpi.types import Ints

WIDTH = 7  # of the vectors that are exchanged


def examine(transport: Transport, configure: Callable[[], list[Config]], tell: Callable[[str], None]) -> None:
    """Tell what was found, on rank 0; RunError on every rank if something does not fit."""
    begin = time.perf_counter()

    def say(text: str) -> None:
        if transport.rank == 0:
            tell(text)

    say(f"{transport.size} ranks, MPI: {transport.library}")
    hosts = transport.gather_objects(platform.node())
    _collectives(transport)
    say("ok  broadcast, gather and reduction over all ranks")
    _same_everywhere(transport, hosts, configure)
    say("ok  the same software, configuration and graph on every rank")
    for plan, owner in on_root(transport, lambda: _plans(configure(), transport.size)):
        pairs = agree(transport, lambda: _exchanges(transport, plan, owner))  # noqa: B023  (called at once)
        total = sum(transport.gather_objects(pairs))
        say(f"ok  {brief(plan.config.name)}: {total} messages between ranks that exchange")
        for rank, host in enumerate(hosts):
            places = ", ".join("hub" if i == plan.nodes else str(i) for i in np.flatnonzero(owner == rank)) or "none"
            say(f"    rank {rank} on {host}: nodes {places}")
    say(f"passed in {time.perf_counter() - begin:.1f} s")


def _plans(configs: list[Config], ranks: int) -> list[tuple[Plan[Any], Ints]]:
    """Each configuration with the owners of its places."""
    plans = [make_plan(config)[0] for config in configs]
    return [(plan, assign_owners(plan.sizes, ranks, plan.topology.has_hub, plan.is_central)) for plan in plans]


def _collectives(transport: Transport) -> None:
    """Each rank sends its number; each result is known beforehand."""
    ranks = np.arange(transport.size)
    arrived = transport.broadcast(ranks.tolist() if transport.rank == 0 else None)
    gathered = transport.start_gather(np.full((1, WIDTH), float(transport.rank)), ranks).finish()
    fits = (
        arrived == ranks.tolist()
        and transport.highest([transport.rank, -transport.rank]) == [transport.size - 1, 0]
        and transport.gather_objects(transport.rank) == arrived
        and (gathered is None or np.array_equal(gathered, np.repeat(ranks[:, None], WIDTH, axis=1)))
    )
    wrong = [rank for rank, fine in enumerate(transport.gather_objects(bool(fits))) if not fine]
    if wrong:
        raise _everywhere(f"collective messages arrive wrongly at rank {wrong[0]}; check the MPI installation")


def _same_everywhere(transport: Transport, hosts: list[str], configure: Callable[[], list[Config]]) -> None:
    """Every rank looks for itself: a stale file or another environment on one host is found here."""
    mine = agree(transport, lambda: _holdings(configure()))
    for rank, theirs in enumerate(everyone := transport.gather_objects(mine)):
        for what, value in everyone[0].items():
            if theirs[what] != value:
                raise _everywhere(
                    f"rank {rank} on {hosts[rank]} has another {what} ({theirs[what]}) than rank 0 on {hosts[0]} ({value}); "
                    "make both hosts see the same files and environment"
                )


def _holdings(configs: list[Config]) -> dict[str, str]:
    edges = b"".join(build(config.network.graph, config.seed).edges.tobytes() for config in configs)
    held: dict[str, str] = {name: metadata.version(name) for name in ("dpadmm-mpi", "numpy")}
    held["Python"] = platform.python_version()
    held["configuration"] = _digest("".join(map(fingerprint, configs)).encode())
    held["graph"] = _digest(edges)
    return held


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _exchanges(transport: Transport, plan: Plan[Any], owner: Ints) -> int:
    """Along every channel of the graph, each place sends its own number; the messages that this rank receives."""
    messages = 0
    mine = np.flatnonzero(owner == transport.rank)
    for tag, (name, channel) in enumerate(plan.topology.channels.items()):
        links = transport.links(channel, owner, WIDTH, tag)
        links.start(np.repeat(mine[:, None].astype(np.float64), WIDTH, axis=1))
        known = links.finish()
        fits = np.array_equal(known, np.repeat(links.known[:, None], WIDTH, axis=1))
        messages += len({int(owner[i]) for i in links.known} - {transport.rank})
        links.close()
        if not fits:
            raise RunError(f"rank {transport.rank}: messages along the {name} arrive wrongly; check the MPI installation")
    return messages


def _everywhere(sentence: str) -> DpadmmError:
    error = RunError(sentence)
    error.everywhere = True
    return error
