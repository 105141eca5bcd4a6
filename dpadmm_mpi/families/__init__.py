"""From a configuration to a plan, one module per family of methods."""
