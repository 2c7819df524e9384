#pragma once

#include <cstdint>

#include "model/config.h"

namespace drover {

/// How neuronx-distributed deals out heads when key and value heads are repeated: there are k·m slots, each
/// with a key/value head and places for query heads that use it, and every rank has consecutive slots. Query
/// heads fill the places of the slots with their key/value head in order; with padding, the last stay empty.
struct KvSlots {
    /// Of copies of one head: all heads, then all again; or all copies of one head, then of the next.
    enum class Order : std::uint8_t { interleaved, adjacent };

    std::int64_t query_heads = 0, kv_heads = 0, head_dim = 0;
    std::int64_t multiplier = 1;
    Order order = Order::interleaved;
    std::int64_t places = 0;  ///< for query heads; as many as these unless they are padded

    std::int64_t count() const { return kv_heads * multiplier; }
    std::int64_t kv_head(std::int64_t slot) const;
    /// The first slot with a head.
    std::int64_t first_slot(std::int64_t kv_head) const;
    std::int64_t places_per_slot() const { return places / count(); }
    /// The query heads of a slot follow each other.
    std::int64_t first_query(std::int64_t slot) const;
    std::int64_t queries_in(std::int64_t slot) const;

  private:
    std::int64_t copy_number(std::int64_t slot) const;
};

/// With `is_padded` there are places for a multiple of `ranks` query heads. Error (about --kv_size_multiplier
/// and --tp_size) when slots cannot be dealt out to `ranks`.
KvSlots kv_slots(const ModelConfig& config, std::int64_t multiplier, KvSlots::Order order, std::int64_t ranks,
                 bool is_padded);

}  // namespace drover
