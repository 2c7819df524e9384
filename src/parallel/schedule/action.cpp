#include "parallel/schedule/action.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace drover {
namespace {

struct KindName {
    PipelineActionKind kind;
    std::string_view text;
    bool has_micro_batch;
};

using Kind = PipelineActionKind;
constexpr std::array kind_names = {
    KindName{Kind::forward, "F", true},
    KindName{Kind::backward, "B", true},
    KindName{Kind::backward_input, "I", true},
    KindName{Kind::backward_weight, "W", true},
    KindName{Kind::send_activations, "SEND_F", true},
    KindName{Kind::receive_activations, "RECV_F", true},
    KindName{Kind::send_gradients, "SEND_B", true},
    KindName{Kind::receive_gradients, "RECV_B", true},
    KindName{Kind::wait_for_sent_activations, "WAIT_SEND_F", true},
    KindName{Kind::wait_for_sent_gradients, "WAIT_SEND_B", true},
    KindName{Kind::gather, "UNSHARD", false},
    KindName{Kind::release, "RESHARD", false},
    KindName{Kind::reduce_gradients, "REDUCE_GRAD", false},
    KindName{Kind::wait_for_reduction, "WAIT_REDUCE_GRAD", false},
};

// The table is in the order of the kinds.
const KindName& name_of(PipelineActionKind kind) {
    return kind_names[static_cast<std::size_t>(kind)];
}

/// Takes a number from the front of `text`.
std::optional<int> take_number(std::string_view& text) {
    constexpr std::size_t most_digits = 7;
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto digits =
        static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), digit) - text.begin());
    if (digits == 0 || digits > most_digits) return std::nullopt;
    int number = 0;
    std::from_chars(text.data(), text.data() + digits, number);
    text.remove_prefix(digits);
    return number;
}

}  // namespace

bool is_computation(PipelineActionKind kind) {
    return kind <= Kind::backward_weight;
}

bool is_transfer(PipelineActionKind kind) {
    return kind >= Kind::send_activations && kind <= Kind::receive_gradients;
}

bool has_micro_batch(PipelineActionKind kind) {
    return name_of(kind).has_micro_batch;
}

std::string to_text(const PipelineAction& action) {
    const KindName& kind = name_of(action.kind);
    if (!kind.has_micro_batch) return fmt::format("{}{}", action.stage, kind.text);
    return fmt::format("{}{}{}", action.stage, kind.text, action.micro_batch);
}

std::optional<PipelineAction> parse_pipeline_action(std::string_view text) {
    const std::optional<int> stage = take_number(text);
    if (!stage) return std::nullopt;
    const std::string_view word = text.substr(0, text.find_first_of("0123456789"));
    const auto kind = std::find_if(kind_names.begin(), kind_names.end(),
                                   [&](const KindName& name) { return name.text == word; });
    if (kind == kind_names.end()) return std::nullopt;
    text.remove_prefix(word.size());
    PipelineAction action{kind->kind, *stage};
    if (kind->has_micro_batch) {
        const std::optional<int> micro_batch = take_number(text);
        if (!micro_batch) return std::nullopt;
        action.micro_batch = *micro_batch;
    }
    if (!text.empty()) return std::nullopt;
    return action;
}

}  // namespace drover
