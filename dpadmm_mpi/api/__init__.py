"""The package from Python: `run` and `load` with arrays and graphs in memory, results that show themselves, and a
scikit-learn estimator (estimators.py, which alone imports scikit-learn).
"""
