#pragma once

#include "backend/backend.h"

namespace drover {

/// A stretch of work that profiles show around its operations: "DecoderLayer", number 3. Scopes nest, and one
/// ends on the stream on which it began. Without anybody who asks for them they cost a test.
class [[nodiscard]] Scope {
  public:
    /// `name` has static storage. Below 0: no number.
    Scope(Backend& backend, Stream stream, std::string_view name, int number = -1)
        : backend_(backend.shows_scopes() ? &backend : nullptr), stream_(stream) {
        if (backend_ != nullptr) backend_->begin_scope(stream, name, number);
    }
    ~Scope() {
        if (backend_ != nullptr) backend_->end_scope(stream_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

  private:
    Backend* backend_;
    Stream stream_;
};

}  // namespace drover
