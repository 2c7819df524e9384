#pragma once

#include <string>
#include <vector>

namespace drover::test {

/// The calls of this program that decide what a power failure leaves, in their order, while this lives:
/// "fsync <name>", "rename <name> <name>" and "exchange <name> <name>", with the last parts of the paths. One
/// at a time; calls of other threads are among them.
class FileCalls {
  public:
    FileCalls();
    ~FileCalls();
    FileCalls(const FileCalls&) = delete;
    FileCalls& operator=(const FileCalls&) = delete;

    /// Those since this was asked last.
    std::vector<std::string> take();
};

}  // namespace drover::test
