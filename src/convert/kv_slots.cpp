#include "convert/kv_slots.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace drover {

std::int64_t KvSlots::kv_head(std::int64_t slot) const {
    return order == Order::interleaved ? slot % kv_heads : slot / multiplier;
}

std::int64_t KvSlots::first_slot(std::int64_t head) const {
    return order == Order::interleaved ? head : head * multiplier;
}

std::int64_t KvSlots::copy_number(std::int64_t slot) const {
    return order == Order::interleaved ? slot / kv_heads : slot % multiplier;
}

std::int64_t KvSlots::first_query(std::int64_t slot) const {
    return kv_head(slot) * (query_heads / kv_heads) + copy_number(slot) * places_per_slot();
}

std::int64_t KvSlots::queries_in(std::int64_t slot) const {
    return std::clamp<std::int64_t>(query_heads / kv_heads - copy_number(slot) * places_per_slot(), 0,
                                    places_per_slot());
}

KvSlots kv_slots(const ModelConfig& config, std::int64_t multiplier, KvSlots::Order order, std::int64_t ranks,
                 bool is_padded) {
    const std::int64_t heads = config.num_attention_heads;
    const KvSlots slots{.query_heads = config.num_attention_heads,
                        .kv_heads = config.num_key_value_heads,
                        .head_dim = config.head_dim,
                        .multiplier = multiplier,
                        .order = order,
                        .places = is_padded ? (heads + ranks - 1) / ranks * ranks : heads};
    if (is_padded && slots.places % slots.count() != 0)
        throw Error(fmt::format("With --kv_size_multiplier {} the {} key/value heads become {}, which do not "
                                "divide the {} query heads with padding.",
                                multiplier, slots.kv_heads, slots.count(), slots.places),
                    "Choose --kv_size_multiplier so that key/value heads times it are --tp_size.");
    if (!is_padded && slots.query_heads % slots.count() != 0)
        throw Error(fmt::format("With --kv_size_multiplier {} the {} key/value heads become {}, which do not "
                                "divide the {} query heads.",
                                multiplier, slots.kv_heads, slots.count(), slots.query_heads),
                    fmt::format("The multiplier must divide {}; or add --pad_attn_heads.",
                                slots.query_heads / slots.kv_heads));
    if (slots.count() % ranks != 0)
        throw Error(
            fmt::format("With --kv_size_multiplier {} there are {} key/value heads, which cannot be "
                        "dealt out to {} tensor ranks.",
                        multiplier, slots.count(), ranks),
            "Choose --kv_size_multiplier so that key/value heads times it are a multiple of --tp_size.");
    return slots;
}

}  // namespace drover
