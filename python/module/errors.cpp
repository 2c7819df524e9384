#include "errors.h"

#include <drover/drover.h>

#include <new>
#include <optional>
#include <string>

#include "values.h"

namespace drover::python {
namespace {

/// The classes are written in Python, in drover/errors.py.
void raise_own(const char* name, const ErrorText& text) {
    try {
        const Reference errors = checked(PyImport_ImportModule("drover.errors"));
        const Reference type = checked(PyObject_GetAttrString(errors.get(), name));
        const Reference cause = to_text(text.cause), remedy = to_text(text.remedy);
        const Reference error =
            checked(PyObject_CallFunctionObjArgs(type.get(), cause.get(), remedy.get(), nullptr));
        PyErr_SetObject(type.get(), error.get());
    } catch (const PythonRaised&) {
        // What went wrong on the way is raised instead.
    }
}

}  // namespace

std::string KeptException::text() {
    if (type_ == nullptr) return {};
    PyErr_NormalizeException(&type_, &value_, &trace_);
    try {
        const Reference module = checked(PyImport_ImportModule("traceback"));
        const Reference format = checked(PyObject_GetAttrString(module.get(), "format_exception"));
        const Reference lines = checked(PyObject_CallFunctionObjArgs(
            format.get(), type_, value_, trace_ == nullptr ? Py_None : trace_, nullptr));
        std::string text;
        for (Py_ssize_t i = 0; i < PyList_Size(lines.get()); ++i)
            text += to_string(PyList_GetItem(lines.get(), i));
        return text;
    } catch (const PythonRaised& problem) {
        PyErr_Clear();
        return problem.what();
    }
}

void raise_current() {
    try {
        throw;
    } catch (const PythonRaised&) {
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        const std::optional<ErrorText> text = error_text(error);
        if (text)
            raise_own(text->is_usage ? "UsageError" : "Error", *text);
        else
            raise_own("Error", {.cause = error.what(), .remedy = {}});
    } catch (...) {
        PyErr_SetString(PyExc_SystemError, "drover: an exception of unknown type");
    }
}

}  // namespace drover::python
