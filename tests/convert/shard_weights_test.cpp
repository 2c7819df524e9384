#include "convert/shard_weights.h"

#include <gtest/gtest.h>

#include "model/config.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

/// Shards of neuronx-distributed's own layers, with heads repeated, fused and not, and the same model whole.
TEST(ShardWeights, GiveTheWholeModel) {
    for (const char* name :
         {"gqa_trn1", "gqa_trn1_fused", "gqa_trn2", "gqa_plain_old_names", "mha_coalesced"}) {
        SCOPED_TRACE(name);
        const std::filesystem::path folder = test::golden_path("nxd") / name;
        EXPECT_TRUE(holds_shards(folder));
        const ModelConfig config = ModelConfig::from_path(folder / "config.json");
        const ShardWeights shards(folder, config);
        const SafetensorsFile whole(folder / "full.safetensors");
        std::size_t compared = 0;
        for (const SafetensorsEntry& entry : whole.header().entries) {
            const std::string& tensor = entry.name;
            const Tensor expected = whole.tensor(entry);
            const std::vector<float> read = shards.read(tensor, expected.numel());
            EXPECT_EQ(std::vector<double>(read.begin(), read.end()), test::values(expected)) << tensor;
            ++compared;
        }
        EXPECT_GT(compared, 10u);
        test::expect_error([&] { shards.read("model.norm.weight", 3); }, {"model.norm.weight", "3"});
        test::expect_error([&] { shards.read("model.nothing", 3); }, {"has no weight model.nothing"});
    }
    EXPECT_FALSE(holds_shards(test::golden_path("generate/llama")));
}

}  // namespace
}  // namespace drover
