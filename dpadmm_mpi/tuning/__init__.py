"""The best settings for a privacy budget: searches over what a method can be set to, and advice about a configuration.

`tuners.py` has the searches, one class each; `task.py` what is searched; `stand_in.py` the records that it costs nothing to
look at; `search.py` the loop; `study.py` what was found, and the file that it is kept in; `private_selection.py` the
search on the records themselves; `advice.py` what a configuration wastes.
"""

from dpadmm_mpi.tuning.study import Study, Trial
from dpadmm_mpi.tuning.tuners import Tuner, tuners

__all__ = ["Study", "Trial", "Tuner", "tuners"]
