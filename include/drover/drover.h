#pragma once

/// Drover's public C++ interface: fine-tuning and generation with the names of Hugging Face's Python
/// libraries. Everything that goes wrong throws a std::runtime_error whose text is one sentence of cause and
/// one of remedy.
#include "drover/data.h"
#include "drover/model.h"
#include "drover/trainer.h"
