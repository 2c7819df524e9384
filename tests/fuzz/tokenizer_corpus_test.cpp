#include <gtest/gtest.h>

#include "fuzz/run_corpus.h"
#include "fuzz/tokenizer_input.h"

namespace drover {
namespace {

TEST(Corpus, TokenizersParseOrGiveAnError) {
    test::run_corpus("tokenizer", test::accepts_tokenizer);
}

}  // namespace
}  // namespace drover
