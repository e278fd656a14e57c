"""The methods that devices take part in, by the names in the terms."""

from __future__ import annotations

from hdpmf.device.declined import DeclinedError
from hdpmf.privacy.mechanisms import MECHANISMS, Mechanism, NoPrivacy, Paid, Sample, Stretch, Uniform, Weight

_MECHANISMS: dict[str, Mechanism] = {
    "mf": NoPrivacy(),
    "dpmf": Uniform(),
    "pdpmf": Sample(),
    "hdpmf": Stretch(),
    "hdpmf-r": Stretch(rescale=False),
    "hdpmf-w": Weight(),
    "hdpmf-paid": Paid(),
}


def mechanism_of(method: str) -> Mechanism:
    """The mechanism of a method that trains in rounds."""
    if method not in _MECHANISMS:
        raise DeclinedError("protocol", f"{method} is not trained in rounds")
    return _MECHANISMS[method]


def method_with(mechanism: str) -> str:
    """The method that a plan's mechanism stands for, where there are no terms that say it."""
    kind = MECHANISMS[mechanism]
    return next(method for method, one in _MECHANISMS.items() if type(one) is kind)
