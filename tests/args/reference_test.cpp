#include "args/parse_line.h"
#include "core/json.h"
#include "core/json_text.h"

namespace drover {
namespace {

const std::filesystem::path folder = std::filesystem::path(DROVER_SOURCE_DIR) / "tests/args";

std::string with_folder(std::string word) {
    const std::string placeholder = "{reference}";
    if (const std::size_t at = word.find(placeholder); at != std::string::npos)
        word.replace(at, placeholder.size(), (folder / "reference").string());
    return word;
}

RunArguments parse_command(const Json& command) {
    std::vector<std::string> words;
    for (const Json& word : command.at("words")) words.push_back(with_folder(word.get<std::string>()));
    ParseOptions options{.world_size = command.at("world_size").get<std::int64_t>()};
    for (const auto& [name, value] : command.at("environment").items())
        options.environment.emplace(name, value.get<std::string>());
    return parse_run_arguments(words, options);
}

/// Every command in the user guides, with its expected settings.
TEST(ReferenceCommands, AreAcceptedAndMeanTheSame) {
    const Json commands = read_json_file(folder / "reference_commands.json");
    EXPECT_GE(commands.size(), 14u);
    for (const Json& command : commands) {
        SCOPED_TRACE(command.at("name").get<std::string>());
        const RunArguments run = parse_command(command);
        const Json settings = run.arguments.to_json();
        for (const auto& [name, expected] : command.at("expects").items()) {
            ASSERT_TRUE(settings.contains(name)) << name;
            EXPECT_EQ(settings.at(name), expected) << name;
        }
        EXPECT_EQ(run.batch_is_global, command.at("batch_is_global").get<bool>());
        EXPECT_EQ(run.fsdp.has_value(), !command.at("fsdp").is_null());
        if (run.fsdp) {
            EXPECT_EQ(run.fsdp->sharding, FsdpSettings::Sharding::full_shard);
        }
        EXPECT_EQ(run.deepspeed.has_value(), !command.at("deepspeed_stage").is_null());
        if (run.deepspeed) {
            EXPECT_EQ(run.deepspeed->stage, command.at("deepspeed_stage").get<int>());
        }
    }
}

TEST(ReferenceCommands, SayWhatDiffersHere) {
    const auto explanations_of = [](std::string_view name) {
        for (const Json& command : read_json_file(folder / "reference_commands.json"))
            if (command.at("name") == name) return parse_command(command).arguments;
        ADD_FAILURE() << name;
        return Arguments();
    };
    const Arguments on_tpu = explanations_of("Llama 2 SPMD guide on virtual machines");
    EXPECT_TRUE(test::has_line(on_tpu, "PJRT_DEVICE=TPU"));
    EXPECT_TRUE(test::has_line(on_tpu, "--remove_unused_columns"));
    EXPECT_TRUE(test::has_line(on_tpu, "XLA_IR_DEBUG"));
    EXPECT_TRUE(test::has_line(on_tpu, "XLA_HLO_DEBUG"));
    EXPECT_EQ(on_tpu.explanations().size(), 4u);
    EXPECT_TRUE(test::has_line(explanations_of("Llama 3 guide, TorchAcc"), "XLA_PERSISTENT_CACHE_PATH"));
    const Arguments deepspeed = explanations_of("Llama 3 guide, DeepSpeed");
    EXPECT_TRUE(test::has_line(deepspeed, "--learning_rate 5e-05 is used (DeepSpeed would take 0.001)"));
    EXPECT_TRUE(test::has_line(deepspeed, "--max_grad_norm 1 is used (DeepSpeed would not clip)"));
    EXPECT_TRUE(test::has_line(deepspeed, "USE_TORCH_XLA"));
    EXPECT_FALSE(test::has_line(explanations_of("Llama 2 SPMD guide in a container"), "LIBTPU_INIT_ARGS"));
    EXPECT_TRUE(
        test::has_line(explanations_of("Llama 2 SPMD guide in a container, 70B"), "LIBTPU_INIT_ARGS"));
}

}  // namespace
}  // namespace drover
