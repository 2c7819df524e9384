#include <gtest/gtest.h>

#include "fuzz/adapter_config_input.h"
#include "fuzz/run_corpus.h"

namespace drover {
namespace {

TEST(Corpus, AdapterConfigsParseOrGiveAnError) {
    test::run_corpus("adapter_config", test::accepts_adapter_config);
}

}  // namespace
}  // namespace drover
