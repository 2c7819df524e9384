#include <gtest/gtest.h>

#include "fuzz/argument_yaml_input.h"
#include "fuzz/run_corpus.h"

namespace drover {
namespace {

TEST(Corpus, ArgumentsInYamlParseOrGiveAnError) {
    test::run_corpus("argument_yaml", test::accepts_argument_yaml);
}

}  // namespace
}  // namespace drover
