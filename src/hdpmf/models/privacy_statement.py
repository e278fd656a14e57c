"""The privacy statement of a model of this library: both sides are in this process."""

from __future__ import annotations

from dataclasses import replace

from hdpmf.common.methods import Method, method_of
from hdpmf.common.privacy.accounting import Setting
from hdpmf.errors import ConfigError
from hdpmf.models.base import Estimator


def setting_of(model: Estimator) -> Setting:
    """Return the accountant's setting of a fitted model.

    Raises:
        ConfigError: The model's class belongs to no registered method.
    """
    setting = Setting.from_params(_method(model).name, model.get_params())
    return replace(setting, scale=model.catalogue_.scale)


def _method(model: Estimator) -> Method:
    method = method_of(model)
    if method is None:
        raise ConfigError(
            f"{type(model).__name__} is not registered as a method, so nothing is claimed for it; "
            "register it with hdpmf.add_method"
        )
    return method
