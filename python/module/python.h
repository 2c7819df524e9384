#pragma once

/// CPython's limited API, so that one file serves Python 3.11 and every later version.
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>
#include <utility>

namespace drover::python {

struct Unreference {
    void operator()(PyObject* object) const { Py_DECREF(object); }
};
/// An owned reference. Only used with the GIL held.
using Reference = std::unique_ptr<PyObject, Unreference>;

/// Releases the GIL while it lives.
class ReleasedGil {
  public:
    ReleasedGil() : state_(PyEval_SaveThread()) {}
    ~ReleasedGil() { PyEval_RestoreThread(state_); }
    ReleasedGil(const ReleasedGil&) = delete;
    ReleasedGil& operator=(const ReleasedGil&) = delete;

  private:
    PyThreadState* state_;
};

}  // namespace drover::python
