"""Population priors: what people in general like, learned from public ratings and shipped as constants.

A prior is a Gaussian for each user's vector: ``theta_i ~ N(M z_i, A)`` with z_i describing what the user rated. It
comes from a data set that was declared public; its file says which. It must not be used to judge a method on the data
set that it comes from.
"""

from hdpmf.models.priors.prior import POPULARITY, SHIPPED, Labels, Prior, load_prior

__all__ = ["POPULARITY", "SHIPPED", "Labels", "Prior", "load_prior"]
