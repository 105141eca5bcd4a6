"""Files: the HDF5 layout and its writer, results, the journal, checkpoints, resuming, comparison."""
