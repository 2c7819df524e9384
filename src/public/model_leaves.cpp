#include "public/model_leaves.h"

#include <fmt/format.h>

#include "core/error.h"
#include "generate/generator.h"
#include "model/params.h"
#include "run/model_source.h"

namespace drover::v1 {

ModelLeaves::ModelLeaves(const CausalLM::Parts& parts) : parts_(parts), trained_(parts.trained) {
    if (trained_) {
        trained_->check_there();
    } else if (parts_.folder.empty()) {
        new_.emplace(parts_.config, HfCompat{}, parts_.seed, InitKind::hugging_face);
    } else {
        stored_.emplace(parts_.folder);
        std::vector<ExpectedTensor> expected;
        make_param_spec(parts_.config).for_each_leaf([&](const LeafSpec& leaf) {
            expected.push_back({leaf.name, leaf.shape});
        });
        names_ = match_names(expected, *stored_, {.tied_head = parts_.config.tie_word_embeddings});
        if (!names_.missing.empty())
            throw Error(fmt::format("{} has no tensor {}.", parts_.folder.string(), names_.missing.front()),
                        "Check that config.json belongs to these weights.");
    }
}

std::vector<float> ModelLeaves::whole(const LeafSpec& leaf) const {
    if (trained_) return trained_->whole_leaf(leaf.name);
    if (new_) return new_->whole(leaf.name);
    std::vector<float> values(static_cast<std::size_t>(leaf.shape.numel()));
    read_rows(stored_->find(names_.found.at(leaf.name)), 0, leaf.shape[0],
              Tensor::of(values.data(), leaf.shape));
    return values;
}

DType ModelLeaves::saved_dtype() const {
    if (trained_) return trained_->dtype();
    if (parts_.dtype != "auto") return floating_dtype_from_name(parts_.dtype, "torch_dtype");
    if (parts_.config.dtype) return *parts_.config.dtype;
    return stored_ ? stored_dtype(parts_.folder) : DType::f32;
}

Json ModelLeaves::generation() const {
    return trained_ ? trained_->generation() : find_generation_config(parts_.folder, parts_.config);
}

}  // namespace drover::v1
