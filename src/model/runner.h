#pragma once

#include "backend/backend.h"

namespace drover {

/// A backend and the stream on which the model's operations run: `run(RmsNorm{…})`.
struct Runner {
    Backend& backend;
    Stream stream;

    template <class Operation>
    void operator()(const Operation& operation) const {
        backend.run(stream, operation);
    }
};

}  // namespace drover
