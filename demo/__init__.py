"""`make demo`: a classifier, its published baseline, and three pull requests."""
