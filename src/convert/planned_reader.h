#pragma once

#include <map>
#include <string>
#include <vector>

#include "convert/conversion_plan.h"

namespace drover {

/// Planned tensors, read whole and one at a time.
class PlannedReader {
  public:
    /// The source must outlive this object. `where` names it in messages.
    PlannedReader(const TensorSource& source, std::vector<PlannedTensor> tensors, std::string where);

    /// Absent: nullptr.
    const PlannedTensor* find(const std::string& name) const;
    /// As float32.
    std::vector<float> read(const PlannedTensor& tensor) const;
    /// The same by name. Error if there is none with so many elements.
    std::vector<float> read(const std::string& name, std::int64_t elements) const;

  private:
    const TensorSource& source_;
    std::map<std::string, PlannedTensor> tensors_;
    std::string where_;
};

}  // namespace drover
