"""Privacy mathematics: weights, mechanisms, coding, noise, accounting. No input or output."""

from hdpmf.common.methods.method import PrivacyClaim
from hdpmf.common.privacy.mechanisms import (
    Mechanism,
    NoPrivacy,
    Sample,
    Stretch,
    Uniform,
    Weight,
    laplace_scale,
    noise_share,
)
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.privacy.spec import Group, PrivacySpec
from hdpmf.common.privacy.weights import PrivacyWeights

__all__ = [
    "Group",
    "Mechanism",
    "NoPrivacy",
    "PrivacyClaim",
    "PrivacySpec",
    "PrivacyWeights",
    "Sample",
    "SeededNoise",
    "Stretch",
    "Uniform",
    "Weight",
    "laplace_scale",
    "noise_share",
]
