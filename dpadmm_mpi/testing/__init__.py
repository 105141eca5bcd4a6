"""The laws that every method, loss and source keeps, as functions: for classes of your own, in your own tests.

Everything runs in the current process, without a launcher: classes that were typed into a notebook can be checked too.
"""

from dpadmm_mpi.testing.losses import check_loss
from dpadmm_mpi.testing.methods import check_method
from dpadmm_mpi.testing.sources import check_source
from dpadmm_mpi.testing.threads import Threads, on_ranks

__all__ = ["Threads", "check_loss", "check_method", "check_source", "on_ranks"]
