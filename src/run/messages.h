#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "core/error.h"

namespace drover {

/// A run's messages on standard error or in a file, filtered by --log_level.
class Messages {
  public:
    /// `level` is a choice of --log_level; passive is the same as info.
    explicit Messages(std::string_view level, std::FILE* out = stderr, std::string before_lines = "");

    /// Progress.
    void info(std::string_view text) const;
    /// Something the user may not expect.
    void warning(std::string_view text) const;

    bool shows_info() const { return info_; }
    bool shows_warnings() const { return warnings_; }

  private:
    void say(std::string_view text) const;

    bool warnings_, info_;
    std::FILE* out_;
    std::string before_lines_;
};

/// Prints on standard error the error that ends the program.
void show_end(const Error& error);

}  // namespace drover
