#include "args/argument_table.h"
#include "args/argument_value.h"
#include "args/environment_table.h"
#include "args/parse_line.h"
#include "core/json.h"
#include "core/json_text.h"

namespace drover {
namespace {

TEST(ArgumentTable, RowsAreComplete) {
    for (const ArgumentGroup& group : run_clm_table().groups())
        for (const Argument& argument : group.arguments) {
            SCOPED_TRACE(argument.name);
            EXPECT_TRUE(argument.help.ends_with('.'));
            EXPECT_EQ(argument.choices.empty(), argument.type != ArgumentType::choice);
            if (argument.standing == Standing::explained) {
                EXPECT_TRUE(argument.note.ends_with('.'));
            }
            EXPECT_EQ(argument.default_text.empty() && argument.type == ArgumentType::boolean, false);
            EXPECT_NO_THROW(default_value(argument));
        }
    for (const EnvironmentVariable& variable : environment_table()) {
        SCOPED_TRACE(variable.name);
        for (const ArgumentTable* table : {&run_clm_table(), &run_llama_nxd_table()})
            if (!variable.sets.empty() && variable.is_for(table->command())) {
                EXPECT_NE(table->find(variable.sets), nullptr) << table->command();
            }
        EXPECT_EQ(variable.note.empty(), variable.standing != Standing::explained);
    }
}

/// Field names of transformers 4.43, 4.57 and 5.15 and of the forks; made by tools/oracle/argument_names.py.
TEST(ArgumentTable, KnowsEveryFieldOfTransformers) {
    const std::filesystem::path file =
        std::filesystem::path(DROVER_SOURCE_DIR) / "tests/golden/arguments.json";
    std::size_t count = 0;
    const Json versions = read_json_file(file);
    for (const auto& [version, fields] : versions.items())
        for (const auto& [name, value] : fields.items()) {
            SCOPED_TRACE(version + " " + name);
            const std::string_view first = run_clm_table().first_name_of(name);
            ASSERT_FALSE(first.empty());
            count += 1;
            if (!value.is_null()) {
                EXPECT_EQ(default_value(*run_clm_table().find(first)), value);
            }
        }
    EXPECT_GT(count, 250u);
}

TEST(Words, NearestNames) {
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
    EXPECT_EQ(edit_distance("abcd", "abdc"), 1u);
    EXPECT_EQ(edit_distance("", "abc"), 3u);
    const std::vector<std::string> names{"alpha", "beta"};
    EXPECT_EQ(nearest_name("alhpa", names), "alpha");
    EXPECT_EQ(nearest_name("zzzzzz", names), "");
    EXPECT_EQ(nearest_name("btea", names), "beta");
    EXPECT_EQ(nearest_name("bota", names), "beta");
    EXPECT_EQ(nearest_name("bolt", names), "");
    EXPECT_EQ(nearest_name("alhpha", names), "alpha");
    EXPECT_EQ(key_values("a=1, b = 2", "x"),
              (std::vector<std::pair<std::string, std::string>>{{"a", "1"}, {"b", "2"}}));
}

TEST(Words, WrapsLines) {
    EXPECT_EQ(wrapped_text("one two  three", 2, 9), "  one two\n  three\n");
    EXPECT_EQ(wrapped_text("longerthanthat x", 1, 5), " longerthanthat\n x\n");
}

}  // namespace
}  // namespace drover
