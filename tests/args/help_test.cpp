#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "args/argument_table.h"
#include "args/command_text.h"
#include "args/help_text.h"
#include "args/parse_line.h"
#include "core/text_file.h"

namespace drover {
namespace {

const ArgumentTable* const tables[]{&run_clm_table(), &run_llama_nxd_table(), &sft_table()};

std::string asked(const ArgumentTable& table, const std::vector<std::string>& words) {
    const auto request = help_request(words);
    return request ? help_answer(table, *request) : "";
}
std::string topic(const std::string& name, const ArgumentTable& table = run_clm_table()) {
    return help_answer(table, {.topic = name});
}
std::string refusal(const std::string& name) {
    return test::error_of<UsageError>([&] { topic(name); });
}

TEST(Help, IsAScreen) {
    for (const ArgumentTable* table : tables) {
        const std::string text = short_help(*table);
        EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40) << text;
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
        EXPECT_MENTIONS(text, fmt::format("Usage: drover {} ", table->command()));
        for (const CommonGroup& group : command_text(*table).common)
            for (const CommonArgument& common : group.arguments)
                EXPECT_MENTIONS(text, fmt::format("\n  --{} ", common.name));
        for (const std::string& name : help_topics(*table)) EXPECT_MENTIONS(text, name);
    }
    EXPECT_MENTIONS(short_help(run_clm_table()), "--learning_rate N");
    EXPECT_MENTIONS(short_help(run_clm_table()), "(5e-05)");
    EXPECT_MENTIONS(short_help(sft_table()), "(2e-05)");
}

TEST(Help, AllIsGroupedAndFitsTheScreen) {
    for (const ArgumentTable* table : tables) {
        const std::string text = topic("all", *table);
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
        for (const ArgumentGroup& group : table->groups()) {
            EXPECT_MENTIONS(text, fmt::format("\n{}\n", group.title));
            for (const Argument& argument : group.arguments)
                if (!argument.is_hidden) {
                    EXPECT_MENTIONS(text, fmt::format("\n  --{} ", argument.name));
                }
        }
    }
    const std::string text = topic("all");
    EXPECT_MENTIONS(text, "--learning_rate number (default: 5e-05)");
    EXPECT_MENTIONS(text, "--train_file path\n");
    EXPECT_MENTIONS(text, "Also --torch_dtype.");
    EXPECT_MENTIONS(text, "PJRT_DEVICE");
}

TEST(Help, AGroupIsOneOfThem) {
    for (const ArgumentTable* table : tables)
        for (const ArgumentGroup& group : table->groups()) {
            EXPECT_TRUE(table->first_name_of(group.name).empty()) << group.name << " is an argument too";
            const std::string text = topic(std::string(group.name), *table);
            EXPECT_MENTIONS(text, fmt::format("\n  --{} ", group.arguments.front().name));
            for (const Argument& argument : group.arguments)
                EXPECT_EQ(text.find(fmt::format("\n  --{} ", argument.name)) == std::string::npos,
                          argument.is_hidden)
                    << argument.name;
        }
    EXPECT_MENTIONS(topic("data"), "--train_file");
    EXPECT_EQ(topic("data").find("--learning_rate"), std::string::npos);
    EXPECT_MENTIONS(topic("environment"), "PJRT_DEVICE");
    EXPECT_EQ(topic("environment").find("--learning_rate"), std::string::npos);
}

TEST(Help, AnArgumentInAnySpelling) {
    const std::string page = topic("learning_rate");
    EXPECT_MENTIONS(page, "--learning_rate\n  Highest learning rate.\n");
    EXPECT_MENTIONS(page, "  Type          a number of 0 or more\n");
    EXPECT_MENTIONS(page, "  Default       5e-05\n");
    EXPECT_MENTIONS(page, "  Also          --lr\n");
    EXPECT_EQ(page.find("Effect"), std::string::npos) << "it acts";
    EXPECT_MENTIONS(page, "drover run_clm --help optimization\n");
    for (const char* name : {"lr", "--lr", "learning-rate", "--learning-rate", "learning_rat"})
        EXPECT_EQ(topic(name), page) << name;
    EXPECT_EQ(asked(run_clm_table(), {"--help", "--lr"}), page);
    EXPECT_EQ(asked(run_clm_table(), {"--do_train", "--help=lr"}), page);
    EXPECT_EQ(topic("no_keep_linebreaks"), topic("keep_linebreaks"));
    EXPECT_MENTIONS(topic("threads"), "Environment   OMP_NUM_THREADS");
    EXPECT_MENTIONS(topic("per_device_train_batch_size"), "a whole number from 1 to 2147483647");
    EXPECT_MENTIONS(topic("eval_strategy"), "one of no, steps or epoch");
    EXPECT_MENTIONS(topic("bf16"), "--bf16 alone is yes, --no_bf16 is no");
    EXPECT_MENTIONS(topic("trust_remote_code"), "  Effect        none; it is accepted");
    EXPECT_MENTIONS(topic("trust_remote_code"), "never run");
    EXPECT_MENTIONS(topic("tensor_parallel_size"), "  Effect        when several processes train together");
    const std::string schedules = topic("lr_scheduler_type");
    EXPECT_EQ(schedules.find("inverse_sqrt"), schedules.rfind("inverse_sqrt")) << schedules;
    EXPECT_EQ(schedules.find("greedy"), std::string::npos);
    EXPECT_MENTIONS(topic("OMP_NUM_THREADS"), "OMP_NUM_THREADS\n");
    EXPECT_MENTIONS(topic("learning_rate", sft_table()), "Default       2e-05");
    // The beginning of several names: all of them.
    EXPECT_MENTIONS(topic("warmup"), "--warmup_ratio\n");
    EXPECT_MENTIONS(topic("warmup"), "--warmup_steps\n");
}

TEST(Help, EveryArgumentHasAPage) {
    for (const ArgumentTable* table : tables)
        for (const ArgumentGroup& group : table->groups())
            for (const Argument& argument : group.arguments) {
                const std::string page = topic(std::string(argument.name), *table);
                EXPECT_TRUE(page.starts_with(fmt::format("--{}\n", argument.name))) << page;
                EXPECT_MENTIONS(page, "Type");
            }
}

TEST(Help, UnknownTopicsAreRefusedWithSuggestions) {
    EXPECT_MENTIONS(refusal("learning_rt"), "Did you mean learning_rate?");
    EXPECT_MENTIONS(refusal("optimisation"), "Did you mean optimization?");
    EXPECT_MENTIONS(refusal("accumulation"), "gradient_accumulation_steps");
    EXPECT_MENTIONS(refusal("xyzzy"), "no argument and no group of arguments \"xyzzy\"");
    EXPECT_MENTIONS(refusal("xyzzy"), "`drover run_clm --help`");
    EXPECT_MENTIONS(refusal("--"), "\"--\"");
}

TEST(Help, IsAskedForAnywhere) {
    const std::string screen = short_help(run_clm_table());
    EXPECT_EQ(asked(run_clm_table(), {"--bogus", "-h"}), screen);
    EXPECT_EQ(asked(run_clm_table(), {"--help", "--bogus", "3"}), screen);
    EXPECT_EQ(asked(run_clm_table(), {"run.yaml", "--help", "data"}), topic("data"));
    EXPECT_EQ(asked(run_clm_table(), {"--help_markdown"}), markdown_page(run_clm_table()));
    EXPECT_EQ(asked(run_clm_table(), {"--help", "yes"}), screen);
    EXPECT_FALSE(help_request(std::vector<std::string>{"--do_train"}).has_value());
    EXPECT_FALSE(help_request(std::vector<std::string>{"--help", "no", "--do_train"}).has_value());
}

TEST(Help, ThePagesInDocsAreTheTables) {
    for (const ArgumentTable* table : tables) {
        const std::string file = fmt::format("docs/{}.md", table->command());
        EXPECT_TRUE(read_text_file(std::filesystem::path(DROVER_SOURCE_DIR) / file) == markdown_page(*table))
            << file << " is not what the tables give. Write it again: drover " << table->command()
            << " --help_markdown > " << file;
    }
}

}  // namespace
}  // namespace drover
