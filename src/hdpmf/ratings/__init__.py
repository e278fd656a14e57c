"""Ratings: the validated table, the data sets, the splits and the synthetic world."""
