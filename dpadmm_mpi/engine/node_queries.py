"""Rank 0 asks, the nodes answer: a vector goes out, and a row per node comes back, in node order.

So that rank 0 can minimise a sum over nodes that other ranks host, and get the same bits on every layout. This is measurement,
not traffic of an algorithm.
"""

from collections.abc import Sequence

import numpy as np

from dpadmm_mpi.methods.base import OptimumSearch, Question
from dpadmm_mpi.methods.metrics import Optimum
from dpadmm_mpi.parallel.transport import Transport
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array, Ints

_STOP = -1


def find_optimum(search: OptimumSearch, transport: Transport, problems: Sequence[NodeProblem], owner: Ints) -> Optimum | None:
    """The centralised optimum on rank 0, where it is found; all ranks call."""
    queries = NodeQueries(transport, problems, owner, search.questions)
    if transport.rank != 0:
        queries.serve()
        return None
    found = search.find(queries.ask)
    queries.stop()
    return found


class NodeQueries:
    """The nodes of all ranks; every rank has one, with the same questions."""

    def __init__(
        self, transport: Transport, problems: Sequence[NodeProblem], owner: Ints, questions: Sequence[Question]
    ) -> None:
        self._transport = transport
        self._problems = problems
        self._owner = owner  # of the nodes
        self._questions = questions
        self._margins: list[Array] = []  # of this rank's nodes, at the current point

    def ask(self, question: Question, vector: Array) -> Array:
        """The answers, on rank 0; the others serve meanwhile."""
        number = self._questions.index(question)
        self._transport.broadcast((number, vector))
        rows = self._transport.start_gather(self._answers(number, vector), self._owner).finish()
        assert rows is not None
        return rows

    def stop(self) -> None:
        """No more questions, on rank 0."""
        self._transport.broadcast((_STOP, None))

    def serve(self) -> None:
        """Answer until rank 0 stops, on the other ranks."""
        while True:
            number, vector = self._transport.broadcast(None)
            if number == _STOP:
                return
            self._transport.start_gather(self._answers(number, vector), self._owner).finish()

    def _answers(self, number: int, vector: Array) -> Array:
        """One row per node of this rank, which may have none."""
        question = self._questions[number]
        if question.moves:
            self._margins = [problem.margins(vector[None])[0] for problem in self._problems]
        rows = [question.answer(p, margins, vector) for p, margins in zip(self._problems, self._margins, strict=True)]
        return np.array(rows).reshape(-1, question.width)
