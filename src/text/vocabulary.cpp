#include "text/vocabulary.h"

#include <bit>

#include "core/error.h"
#include "text/token_hash.h"

namespace drover {

std::size_t Vocabulary::slot_of(std::string_view token) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = token_hash(token) & mask;
    while (slots_[slot] != nothing && text(entries_[slots_[slot]]) != token) slot = (slot + 1) & mask;
    return slot;
}

void Vocabulary::rehash(std::size_t slots) {
    slots_.assign(slots, nothing);
    for (std::uint32_t i = 0; i < entries_.size(); ++i) slots_[slot_of(text(entries_[i]))] = i;
}

void Vocabulary::reserve(std::size_t tokens) {
    entries_.reserve(tokens);
    const std::size_t slots = std::bit_ceil(std::max<std::size_t>(16, 2 * tokens));
    if (slots > slots_.size()) rehash(slots);
}

void Vocabulary::add(std::string_view token, TokenId id) {
    require(id >= 0 && id <= largest_id, "a token id out of range");
    if (2 * (entries_.size() + 1) > slots_.size()) rehash(std::max<std::size_t>(16, 2 * slots_.size()));
    const std::size_t slot = slot_of(token);
    if (slots_[slot] == nothing) {
        slots_[slot] = static_cast<std::uint32_t>(entries_.size());
        entries_.push_back({text_.size(), static_cast<std::uint32_t>(token.size()), id});
        text_.append(token);
    } else {
        entries_[slots_[slot]].id = id;
    }
    if (static_cast<std::size_t>(id) >= entry_of_id_.size())
        entry_of_id_.resize(static_cast<std::size_t>(id) + 1, nothing);
    entry_of_id_[static_cast<std::size_t>(id)] = slots_[slot];
}

std::optional<TokenId> Vocabulary::find(std::string_view token) const {
    if (slots_.empty()) return std::nullopt;
    const std::uint32_t entry = slots_[slot_of(token)];
    return entry == nothing ? std::nullopt : std::optional(entries_[entry].id);
}

std::optional<std::string_view> Vocabulary::token(TokenId id) const {
    if (id < 0 || id >= id_limit()) return std::nullopt;
    const std::uint32_t entry = entry_of_id_[static_cast<std::size_t>(id)];
    return entry == nothing ? std::nullopt : std::optional(text(entries_[entry]));
}

}  // namespace drover
