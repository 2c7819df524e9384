#include "model/families/windows.h"

#include <fmt/format.h>

namespace drover {
namespace {

constexpr const char* full = "full_attention";
constexpr const char* sliding = "sliding_attention";

/// Which blocks slide, from layer_types.
std::vector<bool> listed_layers(const ConfigReader& reader, const ModelConfig& config) {
    const Json& types = config.json.at("layer_types");
    if (!types.is_array() || std::ssize(types) != config.num_hidden_layers)
        reader.fail("layer_types", "is not a list with an entry for each layer",
                    "Give num_hidden_layers entries, or leave the key out.");
    std::vector<bool> slides;
    for (const Json& type : types) {
        if (type != full && type != sliding)
            reader.fail("layer_types", fmt::format("holds {}", type.dump()),
                        fmt::format("Use \"{}\" or \"{}\".", full, sliding));
        slides.push_back(type == sliding);
        if (slides.back() && config.sliding_window == 0)
            reader.fail("layer_types", fmt::format("holds \"{}\", but there is no window", sliding),
                        "Set use_sliding_window to true and sliding_window to a number of tokens.");
    }
    return slides;
}

}  // namespace

std::int64_t read_window(const ConfigReader& reader, std::int64_t fallback) {
    return reader.integer("sliding_window", reader.is_null("sliding_window") ? 0 : fallback, 1,
                          std::int64_t{1} << 31);
}

void read_layer_windows(const ConfigReader& reader, ModelConfig& config) {
    const std::int64_t window = read_window(reader, default_window);
    if (reader.boolean("use_sliding_window", false)) config.sliding_window = window;
    const std::int64_t full_layers = reader.integer("max_window_layers", 28, 0, 1 << 16);
    if (reader.has("layer_types")) {
        config.sliding_layers = listed_layers(reader, config);
    } else {
        config.sliding_layers.clear();
        for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
            config.sliding_layers.push_back(config.sliding_window > 0 && i >= full_layers);
    }
}

Json saved_layer_windows(const ModelConfig& config) {
    Json types = Json::array();
    for (const bool slides : config.sliding_layers) types.push_back(slides ? sliding : full);
    return {{"layer_types", std::move(types)},
            {"max_window_layers", 28},
            {"sliding_window", default_window},
            {"use_sliding_window", false}};
}

Json overwritten_layer_windows(const ModelConfig& config) {
    return config.sliding_window == 0 ? Json{{"sliding_window", nullptr}} : Json::object();
}

}  // namespace drover
