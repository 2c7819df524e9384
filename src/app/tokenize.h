#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/datasets/file_rows.h"
#include "text/tokenizer.h"

namespace drover {

/// The flags of `drover tokenize`.
struct TokenizeOptions {
    std::string tokenizer;
    std::string transformers = "v5";
    std::size_t threads = 0;

    bool ids = false;
    bool decode = false;
    bool no_special_tokens = false;
    bool skip_special_tokens = false;

    std::string output;
    bool cache = false;
    std::vector<std::string> input;
    std::string dataset;
    std::string dataset_config_name;
    std::string split = "train";
    std::string text_column;
    bool keep_linebreaks = true;
    std::optional<std::int64_t> block_size;
    std::string packing = "hf";
    std::int64_t workers = 1;
    std::optional<std::int64_t> max_samples;
    bool overwrite = false;
    std::optional<int> llama_version;

    std::string inspect;
    std::int64_t show_rows = 3;
};

/// The tokenizer given by --tokenizer and --transformers.
std::shared_ptr<const Tokenizer> open_tokenizer(const TokenizeOptions& options);
/// --ids: a JSON string per line of standard input → a JSON array of ids per line of standard output.
void print_ids(const TokenizeOptions& options);
/// --decode: the reverse.
void print_texts(const TokenizeOptions& options);
/// --inspect: shows the header, checks the data, and shows the first rows.
void inspect_token_file(const TokenizeOptions& options);
/// The rows given by --input or --dataset; `notes` as in ReadOptions.
std::shared_ptr<const FileRows> open_corpus(const TokenizeOptions& options,
                                            const std::filesystem::path& notes = {});
/// Error if writing `output`, a file or a folder, would destroy an input file, or become part of the input.
void refuse_own_input(const TokenizeOptions& options, const FileRows& dataset,
                      const std::filesystem::path& output);
/// --output: a corpus → a token file.
void tokenize_corpus(const TokenizeOptions& options);
/// --cache: the same, into the cache that training uses.
void fill_cache(const TokenizeOptions& options);
/// --llama-version: a corpus → the Arrow folder of blocks where run_llama_nxd and its scripts look for it.
void tokenize_for_llama(const TokenizeOptions& options);

}  // namespace drover
