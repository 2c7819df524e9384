#include <gtest/gtest.h>

#include "fuzz/rows_input.h"
#include "fuzz/run_corpus.h"

namespace drover {
namespace {

TEST(Corpus, CsvFilesReadOrGiveAnError) {
    test::run_corpus("csv", test::accepts_csv);
}

TEST(Corpus, JsonRowsReadOrGiveAnError) {
    test::run_corpus("json_rows", test::accepts_json_rows);
}

}  // namespace
}  // namespace drover
