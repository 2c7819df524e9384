"""Numbers of the library as arrays: numpy's where numpy is installed, otherwise those of the module array."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy

    IntArray: TypeAlias = numpy.ndarray | array[int]
    FloatArray: TypeAlias = numpy.ndarray | array[float]


def _as_numpy(numbers: array) -> Any:
    try:
        import numpy
    except ImportError:
        return numbers
    return numpy.frombuffer(numbers, dtype=numpy.dtype(numbers.typecode))


def int32_array(contents: bytes | bytearray | memoryview) -> IntArray:
    """An array with a copy of these numbers."""
    numbers = array("i")
    numbers.frombytes(contents)
    return _as_numpy(numbers)


def float64_array(contents: bytes | bytearray | memoryview) -> FloatArray:
    """An array with a copy of these numbers."""
    numbers = array("d")
    numbers.frombytes(contents)
    return _as_numpy(numbers)
