// The module _drover: handles of the C++ objects and functions on them. The classes that users see are
// written in Python, in the package drover.
#include "errors.h"
#include "functions.h"
#include "python.h"

namespace drover::python {
namespace {

int fill(PyObject* module) {
    for (PyMethodDef* functions : {tokenizer_functions, data_functions, model_functions, trainer_functions})
        if (PyModule_AddFunctions(module, functions) != 0) return -1;
    return PyModule_AddStringConstant(module, "version", DROVER_VERSION);
}

PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(fill)}, {0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_drover",
                          "Drover's C++ objects as opaque handles. Use the package drover.",
                          0,
                          nullptr,
                          slots,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace drover::python

PyMODINIT_FUNC PyInit__drover() {
    return PyModuleDef_Init(&drover::python::definition);
}
