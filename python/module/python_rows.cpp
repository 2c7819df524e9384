#include "python_rows.h"

#include "values.h"

namespace drover::python {
namespace {

/// Takes the GIL on any thread.
class TakenGil {
  public:
    TakenGil() : state_(PyGILState_Ensure()) {}
    ~TakenGil() { PyGILState_Release(state_); }
    TakenGil(const TakenGil&) = delete;
    TakenGil& operator=(const TakenGil&) = delete;

  private:
    PyGILState_STATE state_;
};

}  // namespace

PythonRows::PythonRows(PyObject* object, KeptException& failure)
    : object_(object), failure_(failure), size_(PyObject_Size(object)) {
    if (size_ < 0) throw PythonRaised();
}

TokenRow PythonRows::row(std::int64_t index) const {
    const TakenGil gil;
    try {
        const Reference key = to_int(index);
        const Reference row = checked(PyObject_GetItem(object_, key.get()));
        TokenRow made;
        const Reference ids_key = to_text("input_ids"), labels_key = to_text("labels");
        made.input_ids = to_ids(checked(PyObject_GetItem(row.get(), ids_key.get())).get());
        const int has_labels = PySequence_Contains(row.get(), labels_key.get());
        if (has_labels < 0) throw PythonRaised();
        if (has_labels != 0)
            made.labels = to_ids(checked(PyObject_GetItem(row.get(), labels_key.get())).get());
        return made;
    } catch (const PythonRaised&) {
        if (failure_)
            PyErr_Clear();  // of another thread
        else
            failure_.take();
        throw PythonRaised(failure_.text());
    }
}

}  // namespace drover::python
