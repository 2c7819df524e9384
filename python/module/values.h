#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "errors.h"
#include "python.h"

/// Values between Python and C++. All throw PythonRaised when a value has the wrong type.
namespace drover::python {

/// Bytes that are not UTF-8 become lone surrogates, as in Python's file names, and the same bytes again in
/// to_string().
Reference to_text(std::string_view text);
std::string to_string(PyObject* text);

/// A dict of str, in the order of the keys.
std::map<std::string, std::string> to_string_map(PyObject* dict);
Reference to_dict(const std::map<std::string, double>& numbers);

/// Ids and labels: a buffer of integers of any size (a numpy array, array.array, memoryview) with one
/// dimension, contiguous or not, or an iterable of int. OverflowError if one does not fit.
std::vector<std::int32_t> to_ids(PyObject* ids);
/// A bytearray with the numbers as they are in memory; the package makes arrays of it.
template <class Number>
Reference to_bytes(const std::vector<Number>& numbers) {
    return checked(PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(numbers.data()),
                                                 static_cast<Py_ssize_t>(numbers.size() * sizeof(Number))));
}

Reference to_int(std::int64_t number);

}  // namespace drover::python
