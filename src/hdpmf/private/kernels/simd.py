"""Fixed-width vectors for Numba kernels.

One latent vector fits one or two machine registers, but Numba keeps a small array in memory and
stores it back on every rating, which costs most of the time. This module teaches Numba a vector
type, ``Vec``, that lives in registers: ``load`` and ``store`` move a row of a padded matrix, ``+ -
* ^ | << >>`` work lane by lane, ``dot`` sums a product. LLVM splits a vector that is wider than the
machine's registers, so the same kernel runs on any CPU.

``lanes`` is a tuple whose *length* is the row width: its type tells the compiler the width at
compile time.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model

# Reassociation lets a sum use a tree of lanes. NaN and infinity keep their meaning: the estimators
# look for them.
_FAST = ("reassoc", "contract", "nsz", "arcp")


class Vec(types.Type):
    """Numba type of a register vector of ``count`` numbers of type ``element``."""

    def __init__(self, element: types.Type, count: int) -> None:
        self.element = element
        self.count = count
        super().__init__(name=f"Vec({element}, {count})")


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vec) -> None:
        element = manager.lookup(vector.element).get_value_type()
        super().__init__(manager, vector, ir.VectorType(element, vector.count))


def _broadcast(builder: ir.IRBuilder, scalar: ir.Value, kind: ir.VectorType) -> ir.Value:
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, undefined, mask)


def _row(
    context: Any, builder: ir.IRBuilder, array_type: Any, array: ir.Value, row: ir.Value, count: int
) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [builder.mul(row, ir.Constant(row.type, count))])


@intrinsic
def load(typing: Any, matrix: Any, row: Any, lanes: Any) -> Any:
    """The ``row``-th row of a C-contiguous padded matrix."""
    vector = Vec(matrix.dtype, len(lanes))

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.get_value_type(vector)
        address = _row(
            context, builder, signature.args[0], arguments[0], arguments[1], vector.count
        )
        return builder.load(
            builder.bitcast(address, kind.as_pointer()), align=matrix.dtype.bitwidth // 8
        )

    return vector(matrix, types.intp, lanes), build


@intrinsic
def store(typing: Any, matrix: Any, row: Any, vector: Any) -> Any:
    """Write ``vector`` to the ``row``-th row of a C-contiguous padded matrix."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _row(
            context, builder, signature.args[0], arguments[0], arguments[1], vector.count
        )
        pointer = builder.bitcast(address, arguments[2].type.as_pointer())
        builder.store(arguments[2], pointer, align=matrix.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(matrix, types.intp, vector), build


@intrinsic
def prefetch(typing: Any, matrix: Any, row: Any, lanes: Any) -> Any:
    """Ask for a row that will be loaded soon, so that it is in the cache by then."""
    count = len(lanes)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, word, word, word]),
            "llvm.prefetch.p0",
        )
        address = _row(context, builder, signature.args[0], arguments[0], arguments[1], count)
        read, keep_in_all_caches, data = (ir.Constant(word, number) for number in (0, 3, 1))
        builder.call(function, [builder.bitcast(address, byte), read, keep_in_all_caches, data])
        return context.get_dummy_value()

    return types.void(matrix, types.intp, lanes), build


@intrinsic
def zeros(typing: Any, matrix: Any, lanes: Any) -> Any:
    """A vector of zeros of the matrix's type."""
    vector = Vec(matrix.dtype, len(lanes))

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(context.get_value_type(vector), None)

    return vector(matrix, lanes), build


@intrinsic
def splat(typing: Any, scalar: Any, lanes: Any) -> Any:
    """A vector whose lanes all hold ``scalar``."""
    vector = Vec(scalar, len(lanes))

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _broadcast(builder, arguments[0], context.get_value_type(vector))

    return vector(scalar, lanes), build


@intrinsic
def dot(typing: Any, left: Any, right: Any) -> Any:
    """The scalar product of two vectors."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.fmul(*arguments, flags=_FAST)
        kind = product.type
        bits = left.element.bitwidth
        reduce = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(kind.element, [kind.element, kind]),
            f"llvm.vector.reduce.fadd.v{kind.count}f{bits}",
        )
        return builder.call(reduce, [ir.Constant(kind.element, -0.0), product], fastmath=_FAST)

    return left.element(left, right), build


@intrinsic
def sqrt(typing: Any, vector: Any) -> Any:
    """Square roots, lane by lane."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = arguments[0].type
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(kind, [kind]),
            f"llvm.sqrt.v{kind.count}f{vector.element.bitwidth}",
        )
        return builder.call(function, arguments)

    return vector(vector), build


def _conversion(instruction: str, element: types.Type) -> Any:
    """An intrinsic that makes a vector of ``element`` of another, by an instruction of LLVM."""

    @intrinsic
    def convert(typing: Any, vector: Any) -> Any:
        result = Vec(element, vector.count)

        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(arguments[0], context.get_value_type(result))

        return result(vector), build

    return convert


bits_to_float = _conversion("bitcast", types.float32)
float_to_bits = _conversion("bitcast", types.uint32)
to_float = _conversion("sitofp", types.float32)
"""From *signed* 32-bit integers: the conversion that every vector unit has."""


@intrinsic
def pick(typing: Any, bits: Any, if_set: Any, if_clear: Any) -> Any:
    """``if_set`` in the lanes where ``bits`` is not 0, ``if_clear`` elsewhere."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zero = ir.Constant(arguments[0].type, None)
        condition = builder.icmp_unsigned("!=", arguments[0], zero)
        return builder.select(condition, arguments[1], arguments[2])

    return if_set(bits, if_set, if_clear), build


def _lanewise(op: Callable[..., Any], on_float: str | None, on_integer: str | None) -> None:
    """Give ``Vec`` the operator ``op``; its right operand is a vector or a scalar.

    ``on_float`` and ``on_integer`` name LLVM's instructions; None leaves the operator out.
    """

    @intrinsic
    def apply(typing: Any, left: Any, right: Any) -> Any:
        scalar_right = not isinstance(right, Vec)
        is_float = isinstance(left.element, types.Float)

        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            first, second = arguments
            if scalar_right:
                second = _broadcast(builder, second, first.type)
            if is_float:
                return getattr(builder, str(on_float))(first, second, flags=_FAST)
            return getattr(builder, str(on_integer))(first, second)

        return left(left, left.element if scalar_right else right), build

    @overload(op, strict=False)
    def implementation(left: Any, right: Any) -> Any:
        if not isinstance(left, Vec):
            return None
        if (on_float if isinstance(left.element, types.Float) else on_integer) is None:
            return None
        return lambda left, right: apply(left, right)


_lanewise(operator.add, "fadd", "add")
_lanewise(operator.sub, "fsub", "sub")
_lanewise(operator.mul, "fmul", "mul")
_lanewise(operator.xor, None, "xor")
_lanewise(operator.or_, None, "or_")
_lanewise(operator.and_, None, "and_")
_lanewise(operator.lshift, None, "shl")
_lanewise(operator.rshift, None, "lshr")


@njit(inline="always")
def in_unit_ball(vector: Any) -> Any:
    """The vector, scaled down to length 1 where it is longer."""
    square = dot(vector, vector)
    if square > 1.0:
        vector = vector * type(square)(1.0 / np.sqrt(square))
    return vector
