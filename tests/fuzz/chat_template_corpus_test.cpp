#include <gtest/gtest.h>

#include "fuzz/chat_template_input.h"
#include "fuzz/run_corpus.h"

namespace drover {
namespace {

TEST(Corpus, ChatTemplatesRenderOrGiveAnError) {
    test::run_corpus("chat_template", test::accepts_chat_template);
}

}  // namespace
}  // namespace drover
