"""Privacy statements: one document that says who sees what, what it costs, and what it leaves out.

A statement is made where its facts are (a model, a run, a recommender's folder) and rendered here.
"""

from hdpmf.common.privacy.statement.document import (
    PeopleCosts,
    PersonRow,
    PrivacyStatement,
    RunRow,
    Subject,
)
from hdpmf.common.privacy.statement.rendering import render
from hdpmf.common.privacy.statement.sections import make_statement, provenance

__all__ = [
    "PeopleCosts",
    "PersonRow",
    "PrivacyStatement",
    "RunRow",
    "Subject",
    "make_statement",
    "provenance",
    "render",
]
