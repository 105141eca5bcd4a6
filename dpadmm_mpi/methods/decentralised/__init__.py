"""Methods on a network without a server: ADMM, M-ADMM, R-ADMM, MR-ADMM and what privacy they have."""
