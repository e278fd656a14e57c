"""The UNTRUSTED side: item factors, and what clients chose to send.

It cannot import the private side.
"""

from hdpmf.untrusted.recommender.rounds import Catalogue, Recommender

__all__ = ["Catalogue", "Recommender"]
