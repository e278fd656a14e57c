"""Where item features were before both sides of a federation needed them; see ``hdpmf.ratings.item_features``."""

from hdpmf.ratings.item_features import ItemFeatures, fingerprint

__all__ = ["ItemFeatures", "fingerprint"]
