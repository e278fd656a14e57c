"""Methods, each one frozen `Method` in `METHODS`.

Name, family, options, mechanism, the views that it can run under with what its epsilon is worth
there, and the words for people. Estimators, the command line, the accountant, devices, the service,
the audit, experiments and reports read it. A new method is one `Method` and one estimator,
registered with ``METHODS.add`` or by the entry point ``hdpmf.methods``. Only the standard library
is imported here: help and tab completion read it too.
"""

from hdpmf.common.methods.method import VIEWS, Claim, Family, Form, Method, Status, View
from hdpmf.common.methods.options import Option, check, option, options_of
from hdpmf.common.methods.registry import (
    METHODS,
    method_named,
    method_of,
)

__all__ = [
    "METHODS",
    "VIEWS",
    "Claim",
    "Family",
    "Form",
    "Method",
    "Option",
    "Status",
    "View",
    "check",
    "method_named",
    "method_of",
    "option",
    "options_of",
]
