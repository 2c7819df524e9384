#include "data/conversation/sft_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/batch.h"
#include "core/content_hash.h"
#include "core/error.h"
#include "core/number_text.h"
#include "core/numpy_permutation.h"
#include "data/conversation/document_packer.h"
#include "data/packing/ordered_pipeline.h"
#include "data/packing/token_file.h"
#include "data/packing/token_file_writer.h"

namespace drover {
namespace {

/// Consecutive rows of one group.
struct ExamplePiece {
    std::int64_t first_row = 0;
    RowBatch rows;
    std::vector<TokenizedExample> examples;
    bool ends_group = false;
};

class ExampleReader {
  public:
    ExampleReader(const RowDataset& dataset, Groups groups)
        : source_(dataset.open(0)), groups_(std::move(groups)) {}

    bool operator()(ExamplePiece& piece) {
        constexpr std::int64_t rows_at_once = 64;
        const std::int64_t left = groups_.left_in_group(row_);
        piece.first_row = row_;
        source_->next(piece.rows, static_cast<std::size_t>(std::min(left, rows_at_once)));
        const auto count = static_cast<std::int64_t>(piece.rows.size());
        row_ += count;
        piece.ends_group = count == left;
        return count > 0;
    }

  private:
    std::unique_ptr<RowSource> source_;
    Groups groups_;
    std::int64_t row_ = 0;
};

/// Does some work on a row. Errors say which one they are about.
template <class Work>
void with_row_number(std::int64_t row, const Work& work) {
    try {
        work();
    } catch (const Error& error) {
        throw Error(fmt::format("row {}: {}", row + 1, error.cause()), error.remedy());
    }
}

bool learns_nothing(const std::vector<TokenId>& labels) {
    return std::all_of(labels.begin(), labels.end(), [](TokenId label) { return label == no_label; });
}

/// Puts examples into rows, and counts.
class RowMaker {
  public:
    RowMaker(TokenFileWriter& writer, const SftOptions& options, SftReport& report)
        : writer_(writer), options_(options), report_(report) {}

    /// Examples are counted in the order of the dataset.
    void count(const TokenizedExample& example) {
        ++report_.examples;
        if (!example.lost_prompt.empty() && ++report_.lost == 1) {
            report_.first_lost = report_.examples;
            report_.lost_prompt = example.lost_prompt;
        }
        const auto& most = options_.max_length;
        if (most && std::ssize(example.ids) > *most && !keeps_all()) ++report_.cut;
    }
    void place(TokenizedExample& example) {
        const auto& most = options_.max_length;
        if (options_.packing != DocumentPacking::none) {
            group_.push_back(std::move(example));
            return;
        }
        if (most) cut_example(example, *most, options_.kept_end);
        if (learns_nothing(example.labels)) {
            if (++report_.dropped == 1) report_.first_dropped = report_.examples;
            return;
        }
        const auto length = static_cast<std::int32_t>(example.ids.size());
        write({std::move(example.ids), std::move(example.labels), {length}});
    }
    void end_group() {
        if (group_.empty()) return;
        for (const DocumentRow& row : pack_documents(options_.packing, *options_.max_length, group_))
            write(row);
        group_.clear();
    }

  private:
    bool keeps_all() const {
        return options_.packing == DocumentPacking::bfd_split || options_.packing == DocumentPacking::wrapped;
    }
    void write(const DocumentRow& row) {
        writer_.add(row.ids, row.labels, row.documents);
        ++report_.rows;
        report_.tokens += std::ssize(row.ids);
        report_.labels += std::count_if(row.labels.begin(), row.labels.end(),
                                        [](TokenId label) { return label != no_label; });
    }

    TokenFileWriter& writer_;
    const SftOptions& options_;
    SftReport& report_;
    std::vector<TokenizedExample> group_;
};

/// Tokenizes all examples and gives them to `take` in their order; `end_group` is told where a group ends.
template <class Take, class EndGroup>
void for_each_example(const RowDataset& dataset, ExampleFormat format, const ExampleTokenizer& examples,
                      const SftOptions& options, const Groups& groups, std::size_t threads, const Take& take,
                      const EndGroup& end_group) {
    OrderedPipeline<ExamplePiece> pipeline(
        threads,
        // std::function must be copyable, and a reader is not.
        [reader = std::make_shared<ExampleReader>(dataset, groups)](ExamplePiece& piece) {
            return (*reader)(piece);
        },
        [&](ExamplePiece& piece) {
            piece.examples.clear();
            for (std::size_t i = 0; i < piece.rows.size(); ++i)
                with_row_number(piece.first_row + static_cast<std::int64_t>(i), [&] {
                    piece.examples.push_back(
                        examples(read_example(piece.rows[i], format, options.text_field)));
                });
        });
    while (ExamplePiece* piece = pipeline.next()) {
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

void require_rows(const SftReport& report) {
    if (report.rows > 0) return;
    throw Error(
        report.examples == 0
            ? std::string("The dataset has no rows.")
            : fmt::format("In {} nothing is to be learned.", counted(report.examples, "example")),
        report.examples == 0 ? "Check the input files." : "Check the columns, or raise --max_length.");
}

}  // namespace

std::string SftReport::to_text() const {
    return Json{{"examples", examples},
                {"rows", rows},
                {"tokens", tokens},
                {"labels", labels},
                {"cut", cut},
                {"dropped", dropped},
                {"first_dropped", first_dropped},
                {"lost", lost},
                {"first_lost", first_lost},
                {"lost_prompt", lost_prompt}}
        .dump();
}

SftReport SftReport::from_text(const std::string& text) {
    SftReport report;
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object()) return report;
    const auto take = [&](const char* key, std::int64_t& value) {
        if (json.contains(key) && json[key].is_number_integer()) value = json[key].get<std::int64_t>();
    };
    take("examples", report.examples);
    take("rows", report.rows);
    take("tokens", report.tokens);
    take("labels", report.labels);
    take("cut", report.cut);
    take("dropped", report.dropped);
    take("first_dropped", report.first_dropped);
    take("lost", report.lost);
    take("first_lost", report.first_lost);
    if (json.contains("lost_prompt") && json["lost_prompt"].is_string())
        report.lost_prompt = json["lost_prompt"].get<std::string>();
    return report;
}

std::vector<std::string> SftReport::warnings(std::string_view split, const SftOptions& options) const {
    std::vector<std::string> sentences;
    if (lost > 0)
        sentences.push_back(fmt::format(
            "{}: in {} of {} the ids of the prompt do not begin those of prompt and completion (first in row "
            "{}). The completion begins where they part; \"{}\" is not trained on. End prompts where a token "
            "ends, or use a template that writes them alike in both.",
            split, lost, counted(examples, "example"), first_lost, lost_prompt));
    if (cut > 0)
        sentences.push_back(fmt::format("{}: {} of {} {} more than --max_length {} tokens and {} cut.", split,
                                        cut, counted(examples, "example"), cut == 1 ? "has" : "have",
                                        options.max_length.value_or(0), cut == 1 ? "is" : "are"));
    if (dropped > 0)
        sentences.push_back(
            fmt::format("{}: {} of {} {} left out, because nothing in {} first {} tokens is to be learned "
                        "(first row {}).",
                        split, dropped, counted(examples, "example"), dropped == 1 ? "is" : "are",
                        dropped == 1 ? "its" : "their", options.max_length.value_or(0), first_dropped));
    return sentences;
}

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
    RowMaker maker(writer, options, report);
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
        if (report.examples == 0) require_rows(report);
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
    require_rows(report);
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
