#pragma once

#include <string>

namespace drover {

/// How a program was built.
struct BuildFacts {
    std::string version;          ///< "0.1.0"
    std::string commit{};         ///< abbreviated; empty: unknown
    bool modified = false;        ///< the sources differed from the commit
    std::string type{};           ///< "Release"
    std::string compiler{};       ///< "GNU 12.2.0"
    std::string cuda{};           ///< version of CUDA; empty: built without it
    std::string architectures{};  ///< that its GPU code is for: "90a", "80,90a"
};

/// "drover 0.1.0 (commit 3618b98c4f5e, modified)".
std::string version_line(const BuildFacts& build);

/// "Release build, GNU 12.2.0, CUDA 13.0 for 90a".
std::string build_line(const BuildFacts& build);

/// What `drover --version` prints: these lines and one that names the modules found, of which none is loaded.
std::string version_text(const BuildFacts& build);

}  // namespace drover
