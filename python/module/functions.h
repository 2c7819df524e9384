#pragma once

#include "python.h"

/// The functions of the module _drover, by the object that they are about. Each array ends with an empty
/// entry.
namespace drover::python {

extern PyMethodDef tokenizer_functions[];
extern PyMethodDef data_functions[];
extern PyMethodDef model_functions[];
extern PyMethodDef trainer_functions[];

}  // namespace drover::python
