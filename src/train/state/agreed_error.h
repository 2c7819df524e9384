#pragma once

#include "core/error.h"

namespace drover {

/// An Error that every rank of a run throws at the same place, for they decided alike; one of them is to show
/// it.
class AgreedError : public Error {
  public:
    using Error::Error;
};

}  // namespace drover
