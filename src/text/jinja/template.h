#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "text/jinja/limits.h"
#include "text/jinja/syntax_tree.h"

namespace drover::jinja {

/// A part of a rendered text, in bytes.
struct Span {
    std::size_t begin;
    std::size_t end;
    bool operator==(const Span&) const = default;
};

/// A name and the value that the template sees under it.
using Variable = std::pair<std::string, const Json*>;

struct Rendered {
    std::string text;
    /// What stands in {% generation %} blocks, in the order in which the blocks ended.
    std::vector<Span> generated;
};

/// A template that was read once and can be rendered often, from several threads at once.
class Template {
  public:
    /// `name` (a file, or where the text is from) begins every error.
    Template(std::string_view source, std::string name);

    const std::string& name() const { return name_; }
    /// Whether it has {% generation %} blocks.
    bool has_generation() const { return tree_.has_generation; }

    /// Renders with the given variables; of two with one name the later counts. Error, with the line, if the
    /// template fails, refuses (raise_exception) or exceeds a limit.
    Rendered render(std::span<const Variable> variables, std::chrono::system_clock::time_point now,
                    const Limits& limits = {}) const;

  private:
    std::string name_;
    SyntaxTree tree_;
};

}  // namespace drover::jinja
