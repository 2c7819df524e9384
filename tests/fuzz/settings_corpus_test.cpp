#include <gtest/gtest.h>

#include "fuzz/run_corpus.h"
#include "fuzz/settings_input.h"

namespace drover {
namespace {

TEST(Corpus, SettingsParseOrGiveAnError) {
    test::run_corpus("settings", test::accepts_settings);
}

}  // namespace
}  // namespace drover
