#pragma once

#include <string>
#include <string_view>

namespace drover {

/// "model.layers.0.self_attn." "q_proj" "weight"
struct LeafName {
    std::string_view prefix, module, field;

    explicit LeafName(std::string_view name) {
        const auto last = name.rfind('.');
        if (last == std::string_view::npos) {
            module = name;
            return;
        }
        field = name.substr(last + 1);
        const auto before = last == 0 ? std::string_view::npos : name.rfind('.', last - 1);
        const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
        prefix = name.substr(0, begin);
        module = name.substr(begin, last - begin);
    }

    bool is_weight() const { return field == "weight"; }
    /// The same place under another module and field.
    std::string renamed(std::string_view other_module, std::string_view other_field) const {
        return std::string(prefix).append(other_module).append(".").append(other_field);
    }
};

}  // namespace drover
