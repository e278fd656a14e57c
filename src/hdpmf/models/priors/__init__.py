"""Learning population priors (`hdpmf.public.priors`) from ratings that were declared public."""
