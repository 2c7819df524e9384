#pragma once

#include <span>
#include <vector>

#include "errors.h"
#include "python.h"

namespace drover::python {

/// The memory of an object with the buffer protocol, which stays in place while this lives. Created and
/// destroyed with the GIL held.
class Buffer {
  public:
    explicit Buffer(PyObject* object) {
        if (PyObject_GetBuffer(object, &view_, PyBUF_FULL_RO) != 0) throw PythonRaised();
    }
    ~Buffer() { PyBuffer_Release(&view_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    const Py_buffer& view() const { return view_; }
    /// All elements in order, without gaps.
    std::vector<char> contents() {
        std::vector<char> bytes(static_cast<std::size_t>(view_.len));
        if (PyBuffer_ToContiguous(bytes.data(), &view_, view_.len, 'C') != 0) throw PythonRaised();
        return bytes;
    }
    /// The elements of an array.array of this type.
    template <class Number>
    std::span<const Number> as() const {
        return {static_cast<const Number*>(view_.buf), static_cast<std::size_t>(view_.len) / sizeof(Number)};
    }

  private:
    Py_buffer view_{};
};

}  // namespace drover::python
