#pragma once

/// Drover's public C++ interface: fine-tuning and generation with the names of Hugging Face's Python
/// libraries. Every error throws a std::runtime_error whose text is one sentence with the cause and one with
/// the remedy.
#include "drover/callback.h"
#include "drover/data.h"
#include "drover/error.h"
#include "drover/model.h"
#include "drover/trainer.h"
