#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace drover {

/// Finds the longest of a set of words at a position in a text.
class TokenTrie {
  public:
    struct Match {
        std::size_t begin, end;
        TokenId id;
    };

    /// Adds a word that is not empty; the last of equal words counts.
    void add(std::string_view word, TokenId id);
    bool empty() const { return nodes_.size() == 1; }
    /// The leftmost match from `from` on, and the longest one starting there.
    std::optional<Match> find(std::string_view text, std::size_t from) const;

  private:
    struct Node {
        std::vector<std::pair<char, std::uint32_t>> children;
        TokenId id = -1;
    };
    const std::uint32_t* child(const Node& node, char c) const;

    std::vector<Node> nodes_ = std::vector<Node>(1);
    std::array<bool, 256> begins_{};  // some word starts with this byte
};

}  // namespace drover
