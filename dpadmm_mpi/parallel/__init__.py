"""Messages between ranks: the transport protocol, one process, MPI, the launcher, and what all ranks do together."""
