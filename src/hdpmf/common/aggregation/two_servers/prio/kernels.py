"""Loops over vectors of elements: compiled where Numba is installed, else in NumPy.

Both give the same results to the bit; servers, which check thousands of reports, need the first.
"""

from importlib.util import find_spec

if find_spec("numba") is not None:
    from hdpmf.common.aggregation.two_servers.prio.compiled import (
        add_vectors,
        at_point,
        combine_rows,
        mul_vectors,
        powers,
        rating_inputs,
        rating_outputs,
        rating_result,
        rating_values,
        sponge,
        sub_vectors,
        sum_of_constraints,
        sum_of_products,
        transform,
    )
else:
    from hdpmf.common.aggregation.two_servers.prio.plain import (  # type: ignore[assignment]
        add_vectors,
        at_point,
        combine_rows,
        mul_vectors,
        powers,
        rating_inputs,
        rating_outputs,
        rating_result,
        rating_values,
        sponge,
        sub_vectors,
        sum_of_constraints,
        sum_of_products,
        transform,
    )

__all__ = [
    "add_vectors",
    "at_point",
    "combine_rows",
    "mul_vectors",
    "powers",
    "rating_inputs",
    "rating_outputs",
    "rating_result",
    "rating_values",
    "sponge",
    "sub_vectors",
    "sum_of_constraints",
    "sum_of_products",
    "transform",
]
