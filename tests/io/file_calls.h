#pragma once

#include <string>
#include <vector>

namespace drover::test {

/// For its lifetime, records this program's calls that determine what survives a power failure, in order:
/// "fsync <name>", "rename <name> <name>" and "exchange <name> <name>", with the last parts of the paths.
/// Only one at a time; calls of other threads are included.
class FileCalls {
  public:
    FileCalls();
    ~FileCalls();
    FileCalls(const FileCalls&) = delete;
    FileCalls& operator=(const FileCalls&) = delete;

    /// The calls since this was last called.
    std::vector<std::string> take();
};

}  // namespace drover::test
