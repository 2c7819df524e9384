#include <gtest/gtest.h>

#include "fuzz/run_corpus.h"
#include "fuzz/safetensors_input.h"

namespace drover {
namespace {

TEST(Corpus, SafetensorsFilesParseOrGiveAnError) {
    test::run_corpus("safetensors", test::accepts_safetensors);
}

}  // namespace
}  // namespace drover
