"""Privacy mathematics: who wants how much, how a rating enters, and the noise that covers it. No input or output."""

from hdpmf.privacy.claims import PrivacyClaim
from hdpmf.privacy.mechanisms import Mechanism, NoPrivacy, Sample, Stretch, Uniform, Weight
from hdpmf.privacy.noise import laplace_scale, noise_share
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.privacy.spec import Group, PrivacySpec
from hdpmf.privacy.weights import PrivacyWeights

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
