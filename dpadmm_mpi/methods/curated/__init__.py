"""Methods with a curator who sees exact gradients: ADMM and AccADMM for generalised ERM, DP-ADMM, DP-AccADMM."""
