"""The interface of Python: functions, an estimator of scikit-learn, comparisons, progress."""
