#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace drover {

/// Something the user can fix: one sentence of cause (which file, key or flag, and what is wrong with it)
/// and one of remedy. Ends the program with exit code 1 and no stack trace.
class Error : public std::runtime_error {
  public:
    explicit Error(std::string_view cause, std::string_view remedy = {});

    const std::string& cause() const { return cause_; }
    const std::string& remedy() const { return remedy_; }

    /// What main() returns for this error.
    virtual int exit_code() const { return 1; }

  private:
    std::string cause_;
    std::string remedy_;
};

/// A wrong command line (unknown flag, contradictory flags). Exit code 2.
class UsageError : public Error {
  public:
    using Error::Error;
    int exit_code() const override { return 2; }
};

/// The place of a check. (std::source_location is not there with every compiler that builds the fuzz
/// targets.)
struct CodePlace {
    const char* file;
    const char* function;
    int line;

    static constexpr CodePlace here(const char* file = __builtin_FILE(),
                                    const char* function = __builtin_FUNCTION(),
                                    int line = __builtin_LINE()) {
        return {file, function, line};
    }
};

/// Reports a bug (a broken invariant) with a stack trace, and aborts.
[[noreturn]] void bug(std::string_view what, CodePlace where = CodePlace::here());

/// Aborts with a stack trace when an invariant does not hold. Never used for checking user input.
inline void require(bool holds, std::string_view what, CodePlace where = CodePlace::here()) {
    if (!holds) bug(what, where);
}

}  // namespace drover
