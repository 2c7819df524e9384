#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "core/error.h"

namespace drover {

/// What a run says on standard error or in a file, as far as --log_level lets it.
class Messages {
  public:
    /// `level` is a choice of --log_level; passive says as much as info.
    explicit Messages(std::string_view level, std::FILE* out = stderr, std::string before_lines = "");

    /// What is being done.
    void info(std::string_view text) const;
    /// What the user may not expect.
    void warning(std::string_view text) const;

    bool tell_info() const { return info_; }
    bool tell_warnings() const { return warnings_; }

  private:
    void say(std::string_view text) const;

    bool warnings_, info_;
    std::FILE* out_;
    std::string before_lines_;
};

/// Shows on standard error what ends the program.
void show_end(const Error& error);

}  // namespace drover
