"""The Python interface: functions, a scikit-learn estimator, comparisons, progress."""
