"""What a reproduced figure is: its panels, and what the paper leaves open. Its claims are in configs/claims/NAME.toml."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpadmm_mpi.reproduce.pictures import Panel


@dataclass(frozen=True)
class Variation:
    """A choice that the paper leaves open, made otherwise."""

    text: str
    overrides: tuple[str, ...] = ()  # of every variant
    of_some: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of those whose name fits a pattern, as in "PP, *"


@dataclass(frozen=True)
class Figure:
    name: str  # of the configuration in configs/ and of the claims in configs/claims/ too
    title: str
    panels: Sequence[Panel]
    quick: tuple[str, ...]  # overrides of the quick version
    remark: str = ""  # what differs from the paper, and why
    variations: Sequence[Variation] = ()
    varied: tuple[str, ...] = ()  # overrides of all variations: fewer runs, but as many as the verdicts need
    attacked: bool = False  # a record is rebuilt from what was released: measures attack/known and attack/secret
    columns: int = 3
