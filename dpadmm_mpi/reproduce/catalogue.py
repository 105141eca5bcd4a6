"""All figures, by name."""

from dpadmm_mpi.reproduce import beyond, curated, madmm, networks, psadmm, recycled
from dpadmm_mpi.reproduce.figures import Figure

FIGURES = (*recycled.FIGURES, *madmm.FIGURES, *psadmm.FIGURES, *curated.FIGURES, *beyond.FIGURES, *networks.FIGURES)
CATALOGUE: dict[str, Figure] = {figure.name: figure for figure in FIGURES}
