#include <gtest/gtest.h>

#include "fuzz/config_input.h"
#include "fuzz/run_corpus.h"

namespace drover {
namespace {

TEST(Corpus, ConfigsParseOrGiveAnError) {
    test::run_corpus("config", test::accepts_config);
}

}  // namespace
}  // namespace drover
