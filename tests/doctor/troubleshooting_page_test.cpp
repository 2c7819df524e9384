#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "core/text_file.h"
#include "support/golden.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// The sources as one text, in which a string that continues on the next line is whole, and quotes in strings
/// are plain.
std::string all_sources() {
    std::string all;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(DROVER_SOURCE_DIR) / "src")) {
        if (entry.path().extension() != ".cpp") continue;
        const std::string text = read_text_file(entry.path());
        for (std::size_t at = 0; at < text.size(); ++at) {
            if (text[at] == '\\' && at + 1 < text.size() && text[at + 1] == '"') continue;
            if (text[at] == '"' && (at == 0 || text[at - 1] != '\\')) {
                const std::size_t next = text.find_first_not_of(" \n", at + 1);
                if (next != std::string::npos && text[next] == '"' && next > at + 1) {
                    at = next;
                    continue;
                }
            }
            all += text[at];
        }
    }
    return all;
}

/// The lines of the page's blocks of messages.
std::vector<std::string> messages() {
    std::vector<std::string> found;
    std::istringstream lines(read_text_file(fs::path(DROVER_SOURCE_DIR) / "docs/troubleshooting.md"));
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("```"))
            inside = line == "```text";
        else if (inside)
            found.push_back(line);
    }
    return found;
}

/// The parts of a message between "…", without the marks around them.
std::vector<std::string> fixed_parts(std::string message) {
    std::vector<std::string> parts;
    const std::string gap = "…";
    for (std::size_t at; (at = message.find(gap)) != std::string::npos; message.erase(0, at + gap.size()))
        parts.push_back(message.substr(0, at));
    parts.push_back(message);
    for (std::string& part : parts) {
        constexpr std::string_view marks = " .,:;()\"";
        const std::size_t first = part.find_first_not_of(marks);
        part = first == std::string::npos ? "" : part.substr(first, part.find_last_not_of(marks) + 1 - first);
    }
    std::erase(parts, "");
    return parts;
}

TEST(TroubleshootingPage, QuotesWhatTheProgramSays) {
    const std::string sources = all_sources();
    const std::vector<std::string> quoted = messages();
    EXPECT_GT(quoted.size(), 30u);
    for (const std::string& message : quoted) {
        if (message.starts_with("CPU, ") || message.ends_with("No space left on device.")) continue;
        for (const std::string& part : fixed_parts(message))
            EXPECT_NE(sources.find(part), std::string::npos) << "\"" << part << "\" of " << message;
    }
}

}  // namespace
}  // namespace drover
