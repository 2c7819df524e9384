#include "data/conversation/sft_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/batch.h"
#include "core/content_hash.h"
#include "core/error.h"
#include "core/number_text.h"
#include "core/numpy_permutation.h"
#include "data/conversation/example_pipeline.h"
#include "data/conversation/row_maker.h"
#include "data/packing/token_file.h"
#include "data/packing/token_file_writer.h"

namespace drover {
namespace {

/// Tokenizes all examples and gives them to `take` in their order; `end_group` is told where a group ends.
template <class Take, class EndGroup>
void for_each_example(const RowDataset& dataset, ExampleFormat format, const ExampleTokenizer& examples,
                      const SftOptions& options, const Groups& groups, std::size_t threads, const Take& take,
                      const EndGroup& end_group) {
    const auto pipeline = make_example_pipeline(dataset, format, examples, options, groups, threads);
    while (ExamplePiece* piece = pipeline->next()) {
        for (TokenizedExample& example : piece->examples) take(example);
        if (piece->ends_group) end_group();
    }
    end_group();
}

/// A token file on the way to another one.
class PassingFile {
  public:
    explicit PassingFile(std::filesystem::path path) : path_(std::move(path)) {}
    ~PassingFile() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
    }
    PassingFile(const PassingFile&) = delete;
    PassingFile& operator=(const PassingFile&) = delete;
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

TokenFileWriter rows_writer(const std::filesystem::path& path, const Tokenizer& tokenizer) {
    return TokenFileWriter(path, tokenizer, PackingOptions{.packing = Packing::none, .block_size = 0}, true);
}

/// Calls visit(ids, labels, documents) for every row of a token file, in the order of datasets' shuffle().
template <class Visit>
void for_each_shuffled(const std::filesystem::path& path, std::uint64_t seed, const Visit& visit) {
    const TokenFile file(path);
    std::vector<TokenId> ids, labels;
    std::vector<std::int32_t> documents;
    for (const std::int64_t row : numpy_permutation(file.rows().size(), seed)) {
        file.rows().read(row, ids, labels);
        file.rows().documents(row, documents);
        visit(ids, labels, documents);
    }
}

void require_labels(const SftReport& report) {
    if (report.rows > 0 && report.labels > 0) return;
    throw Error(
        report.examples == 0
            ? std::string("The dataset has no rows.")
            : fmt::format("In {} nothing is to be learned.", counted(report.examples, "example")),
        report.examples == 0 ? "Check the input files." : "Check the columns, or raise --max_length.");
}

}  // namespace

std::string sft_cache_key(const RowDataset& dataset, const ExampleTokenizer& tokenizer,
                          const SftOptions& options) {
    const bool packs = options.packing != DocumentPacking::none;
    ContentHash hash;
    hash.add("sft rows 1")
        .add(dataset.fingerprint())
        .add(tokenizer.fingerprint())
        .add(document_packing_name(options.packing))
        .add(options.max_length ? std::to_string(*options.max_length) : "all")
        .add(options.kept_end == KeptEnd::start ? "start" : "end")
        .add(std::to_string(packs ? options.workers : 1));
    if (options.shuffle_seed) hash.add(fmt::format("shuffled {}", *options.shuffle_seed));
    return hash.hex();
}

SftReport write_sft_file(const std::filesystem::path& path, const RowDataset& dataset, ExampleFormat format,
                         const ExampleTokenizer& examples, const Tokenizer& tokenizer,
                         const SftOptions& options, std::size_t threads) {
    const bool packs = options.packing != DocumentPacking::none;
    require(!packs || options.max_length, "rows that are packed have a length");
    const Groups groups =
        packs && options.workers > 1 ? Groups(dataset.row_count(), options.workers) : Groups(0, 1);
    const PassingFile unshuffled(path.string() + ".rows"), kept(path.string() + ".examples");
    TokenFileWriter writer = rows_writer(options.shuffle_seed ? unshuffled.path() : path, tokenizer);
    SftReport report;
    RowMaker maker(options, report, [&](TokenRow&& row) { writer.add(row.ids, row.labels, row.documents); });
    if (packs && options.shuffle_seed) {
        TokenFileWriter keeper = rows_writer(kept.path(), tokenizer);
        for_each_example(
            dataset, format, examples, options, groups, threads,
            [&](const TokenizedExample& example) {
                maker.count(example);
                std::vector<std::int32_t> document;
                if (!example.ids.empty()) document.push_back(static_cast<std::int32_t>(example.ids.size()));
                keeper.add(example.ids, example.labels, document);
            },
            [] {});
        if (report.examples == 0) require_labels(report);
        keeper.finish();
        std::int64_t placed = 0;
        for_each_shuffled(kept.path(), *options.shuffle_seed, [&](auto& ids, auto& labels, auto&) {
            TokenizedExample example{.ids = ids, .labels = labels};
            const bool ends_group = groups.left_in_group(placed++) == 1;
            maker.place(example);
            if (ends_group) maker.end_group();
        });
        maker.end_group();
    } else {
        for_each_example(
            dataset, format, examples, options, groups, threads,
            [&](TokenizedExample& example) {
                maker.count(example);
                maker.place(example);
            },
            [&] { maker.end_group(); });
    }
    require_labels(report);
    writer.finish();
    if (options.shuffle_seed) {
        TokenFileWriter shuffled = rows_writer(path, tokenizer);
        for_each_shuffled(
            unshuffled.path(), *options.shuffle_seed,
            [&](auto& ids, auto& labels, auto& documents) { shuffled.add(ids, labels, documents); });
        shuffled.finish();
    }
    return report;
}

}  // namespace drover
