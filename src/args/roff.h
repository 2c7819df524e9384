#pragma once

#include <string>
#include <string_view>

namespace drover {

/// Writes a page of the manual in roff's man macros.
class RoffPage {
  public:
    /// `name` as in "drover-run_clm"; `source` as in "Drover 1.0"; `summary` has no full stop.
    RoffPage(std::string_view name, std::string_view source, std::string_view summary);

    void section(std::string_view title);
    void subsection(std::string_view title);
    void paragraph(std::string_view text);
    /// Lines that stay as they are.
    void lines(std::string_view text);
    /// The same, after a line that says that it is an example.
    void example(std::string_view text);
    /// A term in bold, what may follow it in plain letters, and a text indented below.
    void item(std::string_view term, std::string_view value, std::string_view text);

    const std::string& text() const { return text_; }

  private:
    std::string text_;
};

}  // namespace drover
