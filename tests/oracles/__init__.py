"""Plain implementations that share no code with the package: what its results are compared with."""
