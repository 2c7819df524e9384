#include <gtest/gtest.h>

#include "fuzz/example_input.h"
#include "fuzz/run_corpus.h"

namespace drover {
namespace {

TEST(Corpus, ExamplesAreReadOrGiveAnError) {
    test::run_corpus("example", test::accepts_example);
}

}  // namespace
}  // namespace drover
