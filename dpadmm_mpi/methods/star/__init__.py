"""Methods with a server and providers: consensus ADMM, S-ADMM, PS-ADMM."""
