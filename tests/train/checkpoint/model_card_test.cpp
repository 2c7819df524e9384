#include "train/checkpoint/model_card.h"

#include <gtest/gtest.h>

#include "train/state/trainer_settings.h"

namespace drover {
namespace {

/// The lines under "Training hyperparameters".
std::string hyperparameters_of(const ModelCardFacts& facts, TrainerSettings settings) {
    settings.finish();
    const std::string card = model_card(facts, settings, {});
    const std::string head = "### Training hyperparameters\n\n";
    const auto begin = card.find(head) + head.size();
    return card.substr(begin, card.find("\n\n", begin) + 1 - begin);
}

TEST(ModelCard, NamesNoSettingThatWasNotUsed) {
    EXPECT_EQ(hyperparameters_of({.name = "n"}, {}),
              "- learning_rate: 5e-05\n- train_batch_size: 8\n- eval_batch_size: 8\n- seed: 42\n"
              "- lr_scheduler_type: linear\n- num_epochs: 3.0\n");
}

TEST(ModelCard, NamesEverySettingThatWasUsed) {
    TrainerSettings settings{.max_steps = 7,
                             .per_device_train_batch_size = 4,
                             .per_device_eval_batch_size = 5,
                             .gradient_accumulation_steps = 3,
                             .learning_rate = 0.001,
                             .lr_scheduler_type = "cosine",
                             .warmup_steps = 5,
                             .seed = 1,
                             .replicas = 2};
    EXPECT_EQ(hyperparameters_of({.name = "n", .optimizer = "adafactor", .precision = "bf16"}, settings),
              "- learning_rate: 0.001\n- train_batch_size: 4\n- eval_batch_size: 5\n- seed: 1\n"
              "- num_devices: 2\n- gradient_accumulation_steps: 3\n- total_train_batch_size: 24\n"
              "- total_eval_batch_size: 10\n- optimizer: adafactor\n- lr_scheduler_type: cosine\n"
              "- lr_scheduler_warmup_steps: 5.0\n- training_steps: 7\n- precision: bf16\n");
}

TEST(ModelCard, SaysWhereTheWeightsCameFrom) {
    TrainerSettings settings;
    settings.finish();
    const std::string card =
        model_card({.name = "n", .base_model = "org/base", .license = "mit"}, settings, {});
    EXPECT_TRUE(
        card.starts_with("---\nlibrary_name: transformers\nlicense: mit\nbase_model: org/base\ntags:\n"
                         "- generated_from_trainer\nmodel-index:\n- name: n\n  results: []\n---\n"))
        << card;
    EXPECT_EQ(card.find("datasets:"), std::string::npos) << card;
    EXPECT_EQ(card.find("Training results"), std::string::npos) << card;
}

}  // namespace
}  // namespace drover
