#pragma once

#include <string>
#include <string_view>

namespace drover {

/// What a run says on standard error, as far as --log_level lets it.
class Messages {
  public:
    /// `level` is a choice of --log_level; passive says as much as info.
    explicit Messages(std::string_view level);

    /// What is being done.
    void info(std::string_view text) const;
    /// What the user may not expect.
    void warning(std::string_view text) const;

    bool tell_info() const { return info_; }
    bool tell_warnings() const { return warnings_; }

  private:
    bool warnings_, info_;
};

}  // namespace drover
