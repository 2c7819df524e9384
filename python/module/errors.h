#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "python.h"

namespace drover::python {

/// A Python exception is set or kept, and reaches the caller when the call returns. The text is for several
/// processes, which show it and end.
class PythonRaised : public std::runtime_error {
  public:
    explicit PythonRaised(const std::string& text = "a Python exception was raised")
        : std::runtime_error(text) {}
};

/// A Python exception that is kept aside. Only used with the GIL held.
class KeptException {
  public:
    KeptException() = default;
    ~KeptException() { drop(); }
    KeptException(const KeptException&) = delete;
    KeptException& operator=(const KeptException&) = delete;

    /// Takes the exception that is set, if there is one, in place of an earlier one.
    void take() {
        drop();
        PyErr_Fetch(&type_, &value_, &trace_);
    }
    void raise() {
        PyErr_Restore(std::exchange(type_, nullptr), std::exchange(value_, nullptr),
                      std::exchange(trace_, nullptr));
    }
    explicit operator bool() const { return type_ != nullptr; }
    /// With its traceback, as Python prints it.
    std::string text();

    void drop() {
        Py_CLEAR(type_);
        Py_CLEAR(value_);
        Py_CLEAR(trace_);
    }

  private:
    PyObject *type_ = nullptr, *value_ = nullptr, *trace_ = nullptr;
};

/// Sets the Python exception for the C++ exception that is being handled: drover.Error or drover.UsageError
/// for the library's own.
void raise_current();

/// The owned `object`; PythonRaised if it is null.
inline Reference checked(PyObject* object) {
    if (object == nullptr) throw PythonRaised();
    return Reference(object);
}

/// What `call` returns, an owned reference; null with a Python exception set when it throws.
template <class Call>
PyObject* guarded(const Call& call) {
    try {
        return call().release();
    } catch (...) {
        raise_current();
        return nullptr;
    }
}

inline Reference none() {
    Py_INCREF(Py_None);
    return Reference(Py_None);
}

}  // namespace drover::python
