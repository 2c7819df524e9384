#include "convert/merged_checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "convert/conversion_writer.h"
#include "convert/model_plan.h"
#include "peft/adapter_cases.h"
#include "support/errors.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<MergedCheckpoint> merged(const test::AdapterCase& item, int times = 1) {
    std::vector<AdapterWeights> adapters;
    for (int i = 0; i < times; ++i) adapters.emplace_back(item.folder, item.model);
    const bool separates = merged_config(item.model, adapters).head_from_embedding;
    return std::make_unique<MergedCheckpoint>(std::make_unique<FullCheckpoint>(item.base, "model"),
                                              std::move(adapters), separates);
}

std::vector<float> floats(const ModelWeights& weights, const std::string& name) {
    const Tensor tensor = weights.find(name);
    std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
    read_rows(tensor, 0, tensor.shape()[0], Tensor::of(values.data(), tensor.shape()));
    return values;
}

/// The largest difference from PEFT's merged weights, relative to the values.
double difference(const fs::path& written, const test::AdapterCase& item) {
    const ModelWeights ours(written), theirs(item.folder / "merged.safetensors"), base(item.base);
    double largest = 0;
    for (const std::string& name : ours.names()) {
        const bool is_new_head = name == head_leaf && base.entry(name) == nullptr;
        const std::vector<float> a = floats(ours, name),
                                 b = theirs.entry(name) != nullptr
                                         ? floats(theirs, name)
                                         : floats(base, is_new_head ? std::string(embedding_leaf) : name);
        EXPECT_EQ(a.size(), b.size()) << name;
        for (std::size_t i = 0; i < a.size(); ++i)
            largest = std::max<double>(largest, std::fabs(a[i] - b[i]) / std::max(1.0F, std::fabs(b[i])));
    }
    return largest;
}

TEST(MergedCheckpoint, IsWrittenAsPeftMergesIt) {
    for (const char* name : test::adapter_cases) {
        SCOPED_TRACE(name);
        const test::AdapterCase item(name);
        const test::TemporaryFolder folder;
        const auto source = merged(item);
        // Small parts and files, so that tensors are read in several pieces and some again.
        write_conversion(plan_model(source->tensors(), ModelFormat::safetensors, 20'000), *source,
                         folder / "out", {}, {.buffer_bytes = 512, .flush_bytes = 2048});
        const ModelWeights base(item.base), written(folder / "out");
        EXPECT_EQ(written.names().size(), base.names().size() + (item.model.tie_word_embeddings ? 1 : 0));
        EXPECT_LT(difference(folder / "out", item),
                  base.find(std::string(embedding_leaf)).dtype() == DType::f32 ? 2e-6 : 1.0 / 256);
    }
}

TEST(MergedCheckpoint, RoundsOnce) {
    const test::AdapterCase item("llama_dora");
    const test::TemporaryFolder folder;
    const auto source = merged(item);
    std::vector<PlannedTensor> tensors = source->tensors();
    for (const PlannedTensor& tensor : tensors) EXPECT_EQ(tensor.dtype, DType::f32);
    set_floating_dtype(tensors, DType::bf16);
    write_conversion(plan_model(std::move(tensors), ModelFormat::safetensors, 1 << 30), *source,
                     folder / "out");
    EXPECT_EQ(ModelWeights(folder / "out").find("lm_head.weight").dtype(), DType::bf16);
    EXPECT_LT(difference(folder / "out", item), 1.0 / 256);
}

TEST(MergedCheckpoint, AnotherAdapterIsAnotherConversion) {
    const test::AdapterCase item("llama_default");
    const auto one = merged(item);
    EXPECT_EQ(one->merged_count(), 4);
    EXPECT_EQ(one->files().size(), 1 + 2);
    EXPECT_EQ(merged(item, 2)->files().size(), 1 + 4);
}

}  // namespace
}  // namespace drover
