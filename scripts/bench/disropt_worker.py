"""DISROPT's distributed ADMM on one rank per node: mpiexec -n N PYTHON disropt_worker.py SHARDS.npz C RIDGE ETA ITERATIONS

Prints the processor seconds of all ranks together per iteration. Needs disropt (and mpi4py, cvxpy), not this package.
"""

import sys
import time
import warnings

import numpy as np
from disropt.agents import Agent
from disropt.algorithms import ADMM
from disropt.functions import Logistic, Variable
from disropt.problems import Problem
from mpi4py import MPI

warnings.simplefilter("ignore")
comm = MPI.COMM_WORLD
i, N = comm.Get_rank(), comm.Get_size()
X = np.load(sys.argv[1])[f"node{i}"]
C, ridge, eta, iterations = float(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])

(B, d), neighbours = X.shape, [(i - 1) % N, (i + 1) % N]
f = Variable(d)
objective = (C / B) * (np.ones((B, 1)) @ Logistic((-X.T) @ f)) + (ridge / 2) * (f @ f)
agent = Agent(in_neighbors=neighbours, out_neighbors=neighbours)
agent.set_problem(Problem(objective))
algorithm = ADMM(agent, {j: np.zeros((d, 1)) for j in [*neighbours, i]}, np.zeros((d, 1)))
begin = time.process_time()
algorithm.run(iterations=iterations, penalty=eta)
seconds = comm.reduce(time.process_time() - begin)
if i == 0:
    print(seconds / iterations)
