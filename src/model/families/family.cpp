#include "model/families/family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/words.h"
#include "model/config.h"
#include "model/families/all.h"

namespace drover {

std::span<const Family* const> families() {
    static const std::array all = {&llama_family, &mistral_family, &mixtral_family, &qwen2_family,
                                   &qwen3_family};
    return all;
}

const Family* find_family(std::string_view model_type) {
    const auto all = families();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Family* f) { return f->model_type == model_type; });
    return found == all.end() ? nullptr : *found;
}

std::string known_families_text(std::string_view model_type) {
    std::vector<std::string> names;
    for (const Family* family : families()) names.emplace_back(family->model_type);
    const std::string nearest = nearest_name(model_type, names);
    return fmt::format("{}Models of type {} and {} can be trained.",
                       nearest.empty() ? "" : fmt::format("Did you mean \"{}\"? ", nearest),
                       fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

const Family& family_of(const ModelConfig& config) {
    const Family* family = find_family(config.model_type);
    require(family != nullptr, "a config of no family");
    return *family;
}

}  // namespace drover
