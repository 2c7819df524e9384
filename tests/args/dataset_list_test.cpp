#include "args/dataset_list.h"

#include "args/parse_line.h"
#include "args/run_settings.h"
#include "support/golden.h"

namespace drover {
namespace {

using test::error_of_line;
using test::parse_line;

const std::string named_run = "--do_train --config_name c --dataset_name ";

DataSettings data_of(const std::string& flags) {
    return run_settings(parse_line(named_run + flags)).data;
}

TEST(DatasetList, NamesDatasetsWithTheirConfigsColumnsAndWeights) {
    const DataSettings one = data_of("a");
    ASSERT_EQ(one.datasets.size(), 1U);
    EXPECT_EQ(one.datasets[0].name, "a");
    EXPECT_TRUE(one.dataset_weights.empty());

    const DataSettings shared = data_of("a,b --dataset_config_name c --text_column t");
    ASSERT_EQ(shared.datasets.size(), 2U);
    EXPECT_TRUE(shared.dataset_weights.empty());
    for (const NamedDataset& dataset : shared.datasets) {
        EXPECT_EQ(dataset.config_name, "c");
        EXPECT_EQ(dataset.text_column, "t");
    }
    const DataSettings own =
        data_of("a,o/b,c --dataset_config_name x,,z --text_column ,body, --dataset_weights 3,0.5,1e-3");
    ASSERT_EQ(own.datasets.size(), 3U);
    EXPECT_EQ(own.datasets[1].name, "o/b");
    EXPECT_EQ(own.datasets[1].config_name, "");
    EXPECT_EQ(own.datasets[2].config_name, "z");
    EXPECT_EQ(own.datasets[0].text_column, "");
    EXPECT_EQ(own.datasets[1].text_column, "body");
    EXPECT_EQ(own.dataset_weights, (std::vector<double>{3, 0.5, 1e-3}));
}

TEST(DatasetList, AFolderWithACommaInItsNameIsItself) {
    const test::TemporaryFolder folder;
    const std::string name = (folder / "a,b").string();
    EXPECT_EQ(data_of(name).datasets.size(), 2U);
    std::filesystem::create_directory(name);
    const DataSettings data = data_of(name + " --dataset_config_name x,y");
    ASSERT_EQ(data.datasets.size(), 1U);
    EXPECT_EQ(data.datasets[0].name, name);
    EXPECT_EQ(data.datasets[0].config_name, "x,y");
}

TEST(DatasetList, RefusesListsThatDoNotMatch) {
    for (const auto& [flags, mentions] : std::vector<std::pair<std::string, std::string>>{
             {"a,,b", "where a name is empty"},
             {"a,", "where a name is empty"},
             {"a,b,c --dataset_config_name x,y", "--dataset_config_name lists 2 values"},
             {"a,b --text_column x,y,z", "--text_column lists 3 values"},
             {"a,b --dataset_weights 1,2,3", "--dataset_weights lists 3 values, but --dataset_name lists 2"},
             {"a,b --dataset_weights 1", "--dataset_weights lists 1 value, but --dataset_name lists 2"},
             {"a --dataset_weights 1", "--dataset_name does not list several datasets"},
             {"a,b --dataset_weights 1,0", "\"0\", which is not a number above 0"},
             {"a,b --dataset_weights 1,-2", "\"-2\", which is not a number above 0"},
             {"a,b --dataset_weights nan,1", "\"nan\", which is not a number above 0"},
             {"a,b --dataset_weights 1,inf", "\"inf\", which is not a number above 0"},
             {"a,b --dataset_weights 1,1e30", "\"1e30\", which is not a number above 0"},
             {"a,b --dataset_weights 1,", "\"\", which is not a number above 0"},
             {"a,b --dataset_weights 1,x", "\"x\", which is not a number above 0"},
             {"a,b --dataset_weights 1,1 --group_by_length", "cannot group them by length"},
             {"a,b --streaming --max_steps 5", "does not know how large the 2 datasets"},
         })
        EXPECT_MENTIONS(error_of_line(named_run + flags), mentions) << flags;
    EXPECT_MENTIONS(error_of_line(test::plain_run + "--dataset_weights 1,1"),
                    "--dataset_name does not list several datasets");
    EXPECT_NO_THROW(parse_line(named_run + "a,b --streaming --max_steps 5 --dataset_weights 1,1"));
    EXPECT_NO_THROW(parse_line("--do_eval --config_name c --streaming --dataset_name a,b"));
}

}  // namespace
}  // namespace drover
