#include "text/token_trie.h"

#include <cstring>

namespace drover {

const std::uint32_t* TokenTrie::child(const Node& node, char c) const {
    for (const auto& [byte, index] : node.children)
        if (byte == c) return &index;
    return nullptr;
}

void TokenTrie::add(std::string_view word, TokenId id) {
    begins_[static_cast<unsigned char>(word[0])] = true;
    std::uint32_t at = 0;
    for (const char c : word) {
        if (const std::uint32_t* next = child(nodes_[at], c)) {
            at = *next;
            continue;
        }
        const auto added = static_cast<std::uint32_t>(nodes_.size());
        nodes_[at].children.emplace_back(c, added);
        nodes_.emplace_back();
        at = added;
    }
    nodes_[at].id = id;
}

std::optional<TokenTrie::Match> TokenTrie::find(std::string_view text, std::size_t from) const {
    if (empty()) return std::nullopt;
    const auto& first = nodes_[0].children;
    for (std::size_t begin = from; begin < text.size(); ++begin) {
        if (first.size() == 1) {  // the usual case: all of them start with "<"
            const void* place = std::memchr(text.data() + begin, first[0].first, text.size() - begin);
            if (!place) return std::nullopt;
            begin = static_cast<std::size_t>(static_cast<const char*>(place) - text.data());
        } else if (!begins_[static_cast<unsigned char>(text[begin])]) {
            continue;
        }
        std::optional<Match> longest;
        std::uint32_t at = 0;
        for (std::size_t i = begin; i < text.size(); ++i) {
            const std::uint32_t* next = child(nodes_[at], text[i]);
            if (!next) break;
            at = *next;
            if (nodes_[at].id >= 0) longest = Match{begin, i + 1, nodes_[at].id};
        }
        if (longest) return longest;
    }
    return std::nullopt;
}

}  // namespace drover
