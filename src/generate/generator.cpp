#include "generate/generator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/convert.h"
#include "core/error.h"
#include "core/json_text.h"

namespace drover {

LoadReport load_weights(InferenceModel& model, Backend& backend, const std::filesystem::path& path) {
    const ModelWeights weights(path);
    std::vector<ExpectedTensor> expected;
    for (const OwnedLeaf& leaf : model.weights()) expected.push_back({leaf.spec->name, leaf.spec->shape});
    LoadReport report = match_names(expected, weights, {.tied_head = model.config().tie_word_embeddings});
    if (!report.missing.empty())
        throw Error(fmt::format("{} has no tensor {}{}.", path.string(), report.missing.front(),
                                report.missing.size() == 1
                                    ? ""
                                    : fmt::format(" and lacks {} more", report.missing.size() - 1)),
                    "Check that config.json belongs to these weights.");
    const Stream stream = backend.main_stream();
    std::vector<std::byte> converted;
    for (const OwnedLeaf& leaf : model.weights()) {
        converted.resize(leaf.param.bytes());
        const Tensor on_host(converted.data(), leaf.param.dtype(), leaf.param.shape());
        read_rows(weights.find(report.found.at(leaf.spec->name)), 0, leaf.row_count, on_host);
        backend.copy(stream, on_host, leaf.param);
        backend.synchronize(stream);
    }
    return report;
}

LoadReport load_weights(InferenceModel& model, Backend& backend, const std::filesystem::path& path,
                        std::span<const AdapterWeights> adapters) {
    if (adapters.empty()) return load_weights(model, backend, path);
    const MergedWeights merged(path, model.config(), adapters);
    const Stream stream = backend.main_stream();
    std::vector<std::byte> converted;
    for (const OwnedLeaf& leaf : model.weights()) {
        const std::vector<float> values = merged.read(leaf.spec->name, leaf.spec->shape);
        converted.resize(leaf.param.bytes());
        convert_elements(values.data(), DType::f32, converted.data(), leaf.param.dtype(), leaf.param.numel());
        backend.copy(stream, Tensor(converted.data(), leaf.param.dtype(), leaf.param.shape()), leaf.param);
        backend.synchronize(stream);
    }
    return merged.report();
}

DType stored_dtype(const std::filesystem::path& path) {
    const ModelWeights weights(path);
    for (const std::string& name : weights.names())
        if (name.ends_with("embed_tokens.weight")) return weights.find(name).dtype();
    return DType::f32;
}

std::vector<std::int32_t> end_ids(const ModelConfig& config, const std::filesystem::path& folder) {
    const auto file = folder / "generation_config.json";
    return end_ids(config, std::filesystem::exists(file) ? read_json_file(file) : Json(), file.string());
}

std::vector<std::int32_t> end_ids(const ModelConfig& config, const Json& generation,
                                  const std::string& place) {
    std::vector<std::int32_t> ids;
    const Json ends = generation.is_object() ? generation.value("eos_token_id", Json()) : Json();
    const auto add = [&](const Json& id) {
        if (!id.is_number_integer())
            throw Error(fmt::format("{}: eos_token_id is {}.", place, ends.dump()),
                        "It must be an integer or a list of integers.");
        ids.push_back(id.get<std::int32_t>());
    };
    if (generation.is_object() && generation.contains("eos_token_id") && ends.is_null()) return {};
    if (ends.is_array())
        for (const Json& id : ends) add(id);
    else if (!ends.is_null())
        add(ends);
    if (ids.empty())
        for (const std::int64_t id : config.eos_token_ids) ids.push_back(static_cast<std::int32_t>(id));
    return ids;
}

std::size_t Generator::known_tokens(std::span<const std::int32_t> prompt) const {
    const auto differing = std::mismatch(prompt.begin(), prompt.end(), cached_.begin(), cached_.end()).first;
    return std::min(static_cast<std::size_t>(differing - prompt.begin()), prompt.size() - 1);
}

std::vector<float> Generator::take_in(std::span<const std::int32_t> ids, std::int64_t begin) {
    cached_.resize(static_cast<std::size_t>(begin));
    const auto largest = static_cast<std::size_t>(model_.options().new_tokens);
    std::vector<float> logits;
    std::vector<NewToken> piece;
    for (std::size_t done = 0; done < ids.size(); done += piece.size()) {
        piece.clear();
        for (std::size_t i = done; i < ids.size() && piece.size() < largest; ++i)
            piece.push_back(
                {.id = ids[i], .position = static_cast<std::int32_t>(begin + static_cast<std::int64_t>(i))});
        if (done + piece.size() < ids.size())
            model_.forward(backend_.main_stream(), piece, 1);
        else
            logits = model_.logits(backend_.main_stream(), piece, 1);
    }
    cached_.insert(cached_.end(), ids.begin(), ids.end());
    return logits;
}

std::vector<std::int32_t> Generator::generate(std::span<const std::int32_t> prompt,
                                              const GenerationSettings& settings,
                                              const std::function<void(std::int32_t)>& tell) {
    check_sampling(settings.sampling);
    const std::int64_t capacity = model_.options().capacity;
    auto length = static_cast<std::int64_t>(prompt.size());
    if (prompt.empty()) throw Error("The prompt has no tokens.", "Give at least one token to continue.");
    if (length >= capacity)
        throw Error(fmt::format("The prompt has {} tokens, and there is room for {}, new ones included.",
                                length, capacity),
                    "Shorten the prompt.");
    std::vector<std::int32_t> made;
    const std::size_t known = settings.keep_common_start ? known_tokens(prompt) : 0;
    prompt_logits_ = take_in(prompt.subspan(known), static_cast<std::int64_t>(known));
    std::vector<float> logits = prompt_logits_;
    while (static_cast<std::int64_t>(made.size()) < settings.max_new_tokens) {
        const std::int32_t id =
            choose_token(logits, settings.sampling, static_cast<std::int64_t>(made.size()));
        made.push_back(id);
        if (tell) tell(id);
        const bool is_end = std::find(settings.ends.begin(), settings.ends.end(), id) != settings.ends.end();
        if (is_end || length == capacity || static_cast<std::int64_t>(made.size()) == settings.max_new_tokens)
            break;
        if (settings.is_stopped && settings.is_stopped()) break;
        logits = take_in({&made.back(), 1}, length++);
    }
    return made;
}

}  // namespace drover
