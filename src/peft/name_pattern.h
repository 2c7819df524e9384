#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace drover {

/// A regular expression of an adapter's configuration, for names of modules.
class NamePattern {
  public:
    /// Error, naming `where`, when it is not understood.
    NamePattern(std::string_view pattern, std::string_view where);

    /// Whether it matches the whole of a name.
    bool matches(std::string_view name) const;
    /// What the expression matches of a name when it starts at its begin; "" when it does not. A \K in it
    /// leaves out what is before.
    std::string_view found_in(std::string_view name) const;

  private:
    std::vector<Span> matches_of(const Regex& regex, std::string_view name) const;

    std::string pattern_, where_;
    Regex whole_, begin_;
};

}  // namespace drover
