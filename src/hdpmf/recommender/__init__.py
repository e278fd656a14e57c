"""The UNTRUSTED side: item factors, and whatever shards chose to send. It cannot import the private side."""

from hdpmf.recommender.catalogue import Catalogue
from hdpmf.recommender.one_round import OneRoundRecommender
from hdpmf.recommender.recommender import Recommender

__all__ = ["Catalogue", "OneRoundRecommender", "Recommender"]
