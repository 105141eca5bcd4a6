"""What a reproduced figure is: its claims, its panels, and what the paper leaves open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpadmm_mpi.reproduce.claims import Claim
from dpadmm_mpi.reproduce.pictures import Panel


@dataclass(frozen=True)
class Variation:
    """A choice that the paper leaves open, made otherwise; run in the quick version."""

    text: str
    overrides: tuple[str, ...] = ()  # of every variant
    of_some: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of those whose name fits a pattern, as in "PP, *"


@dataclass(frozen=True)
class Figure:
    name: str  # of the configuration in configs/ too
    title: str
    says: str  # what the paper says that one sees
    claims: Sequence[Claim]
    panels: Sequence[Panel]
    quick: tuple[str, ...]  # overrides of the quick version
    remark: str = ""  # what differs from the paper, and why
    variations: Sequence[Variation] = ()
    columns: int = 3
