#include <gtest/gtest.h>

#include "fuzz/run_corpus.h"
#include "fuzz/token_file_input.h"

namespace drover {
namespace {

TEST(Corpus, TokenFilesOpenOrGiveAnError) {
    test::run_corpus("token_file", test::accepts_token_file);
}

}  // namespace
}  // namespace drover
