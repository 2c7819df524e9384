#pragma once

#include <memory>
#include <string>

#include "core/json.h"
#include "text/aligned_text.h"

namespace drover {

/// Changes a text before it is split.
class Normalizer {
  public:
    virtual ~Normalizer() = default;
    virtual void apply(std::string& text) const = 0;
    /// The same, keeping track of where bytes come from.
    virtual void apply(AlignedText& text) const = 0;
};

/// The "normalizer" of a tokenizer.json; null if `description` is null. Error names an unsupported type.
std::unique_ptr<Normalizer> read_normalizer(const Json& description, const std::string& where);

}  // namespace drover
