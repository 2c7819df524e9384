#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace drover::test {

/// A file that is removed at the end of the test.
class FileOfTest {
  public:
    FileOfTest(const std::string& name, std::string_view content)
        : path_(std::filesystem::path(testing::TempDir()) / name) {
        std::ofstream(path_) << content;
    }
    ~FileOfTest() { std::filesystem::remove(path_); }
    std::string path() const { return path_.string(); }

  private:
    std::filesystem::path path_;
};

}  // namespace drover::test
