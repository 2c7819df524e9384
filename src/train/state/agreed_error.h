#pragma once

#include "core/error.h"

namespace drover {

/// An Error that every rank of a run throws at the same point, because they decided together. One rank
/// reports it.
class AgreedError : public Error {
  public:
    using Error::Error;
};

}  // namespace drover
