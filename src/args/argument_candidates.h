#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

class ArgumentTable;

/// A word that a shell may offer, and what it means in a few words.
struct Candidate {
    std::string word;
    std::string meaning{};
};

struct Candidates {
    std::vector<Candidate> words{};
    bool files = false;  ///< the names of files fit, too

    /// Adds the word if it begins with `typed`.
    void offer(std::string word, std::string_view typed, std::string_view meaning = {});
};

/// What a shell may offer for the unfinished word `typed` (maybe empty) after the words `before` of a command
/// with this table. Values of `--flag=value` come with the flag.
Candidates argument_candidates(const ArgumentTable& table, std::span<const std::string> before,
                               const std::string& typed);

/// "sentence" of a help text: up to the first full stop or semicolon.
std::string first_clause(std::string_view text);

}  // namespace drover
