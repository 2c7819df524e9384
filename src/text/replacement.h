#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/aligned_text.h"
#include "text/json_fields.h"
#include "text/split_pattern.h"

namespace drover {

/// A "pattern" of tokenizer.json: {"String": …} or {"Regex": …}.
std::unique_ptr<SplitPattern> read_pattern(const JsonFields& component);

/// Replaces every match of a pattern by `content`. A "Replace" of tokenizer.json.
class Replacement {
  public:
    explicit Replacement(const JsonFields& component);
    void apply(std::string& text) const;
    void apply(AlignedText& text) const;

  private:
    std::unique_ptr<SplitPattern> pattern_;
    std::string content_;
};

}  // namespace drover
