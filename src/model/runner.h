#pragma once

#include "backend/scope.h"

namespace drover {

/// A backend and the stream on which the model's operations run: `run(RmsNorm{…})`.
struct Runner {
    Backend& backend;
    Stream stream;

    template <class Operation>
    void operator()(const Operation& operation) const {
        backend.run(stream, operation);
    }

    /// A stretch of the operations, for profiles; see Scope.
    Scope scope(std::string_view name, int number = -1) const { return {backend, stream, name, number}; }
};

}  // namespace drover
