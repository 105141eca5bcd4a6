"""The papers' figures, redone: a configuration each, pictures, and the papers' claims as predicates on the results."""
