#include "app/tokenize.h"

#include <fmt/format.h>

#include <memory>

#include "app/commands.h"
#include "args/command.h"
#include "core/error.h"
#include "data/packing/token_stream.h"

namespace drover {
namespace {

void run_tokenize(TokenizeOptions options) {
    const int tasks = (options.ids ? 1 : 0) + (options.decode ? 1 : 0) +
                      (options.output.empty() || options.llama_version ? 0 : 1) +
                      (options.inspect.empty() ? 0 : 1) + (options.llama_version ? 1 : 0) +
                      (options.cache ? 1 : 0);
    if (tasks != 1)
        throw UsageError(tasks == 0 ? "Nothing to do is given." : "Several things to do are given.",
                         "Use one of --ids, --decode, --output, --cache, --inspect and --llama-version.");
    if (options.threads == 0) options.threads = default_tokenize_threads();
    if (!options.inspect.empty()) return inspect_token_file(options);
    if (options.llama_version) return tokenize_for_llama(options);
    if (options.tokenizer.empty())
        throw UsageError("--tokenizer is not given.",
                         "Name a model folder, tokenizer.json, tokenizer.model or tiktoken file.");
    if (options.ids) return print_ids(options);
    if (options.decode) return print_texts(options);
    if (options.cache) return fill_cache(options);
    tokenize_corpus(options);
}

}  // namespace

std::shared_ptr<const Tokenizer> open_tokenizer(const TokenizeOptions& options) {
    return load_tokenizer(options.tokenizer,
                          options.transformers == "v4" ? TransformersRules::v4 : TransformersRules::v5);
}

void add_tokenize_command(const Command& app) {
    auto options = std::make_shared<TokenizeOptions>();
    const Command command = app.add_command(
        "tokenize",
        "Turn text into token ids: line by line, or a corpus into a token file that training maps into "
        "memory.\nExample: drover tokenize --tokenizer my-model --input corpus.txt --block_size 1024 "
        "--output corpus.tokens");
    command.show_defaults();
    command.add_option("--tokenizer", options->tokenizer,
                       "model folder, tokenizer.json, tokenizer.model or tiktoken rank file");
    command
        .add_option("--transformers", options->transformers,
                    "v4 or v5: whose rules count where these versions give other ids")
        .one_of({"v4", "v5"});
    command.add_option("--threads", options->threads, "threads that tokenize; 0: one per processor")
        .between(0, 4096);

    command.add_flag("--ids", options->ids,
                     "read a JSON string per line from standard input, print an array of ids per line");
    command.add_flag("--decode", options->decode, "the other way: arrays in, JSON strings out");
    command.add_flag("--no_special_tokens", options->no_special_tokens, "--ids: without BOS and the like");
    command.add_flag("--skip_special_tokens", options->skip_special_tokens,
                     "--decode: special tokens give no text");

    command.add_option("--output", options->output, "write a token file; with --llama-version the folder");
    command.add_flag("--cache", options->cache, "put the token file into the cache where training looks");
    command.add_option("--input", options->input, "files to read: txt, json, jsonl, csv, parquet, arrow, …");
    command.add_option("--dataset", options->dataset, "dataset to read: a folder or a name in the cache");
    command.add_option("--dataset_config_name", options->dataset_config_name, "config of the dataset");
    command.add_option("--split", options->split, "split of the dataset");
    command.add_option("--text_column", options->text_column,
                       "column to read; else \"text\" if there is one, else the first");
    command.add_option("--keep_linebreaks", options->keep_linebreaks, "txt: rows end with their line break");
    command
        .add_option("--block_size", options->block_size,
                    "tokens per row; with --packing none, what is longer is cut off")
        .between(2, 1 << 30);
    command.add_option("--packing", options->packing,
                       "hf: as run_clm, which drops the rest of every 1,000 rows; lossless: drops nothing; "
                       "none: a row is an example");
    command
        .add_option("--workers", options->workers,
                    "preprocessing_num_workers, on which the blocks of --packing hf depend (not the speed)")
        .between(1, 1 << 20);
    command.add_option("--max_samples", options->max_samples, "keep only the first rows").between(1, 1 << 30);
    command.add_flag("--overwrite", options->overwrite, "replace what is there");
    command
        .add_option("--llama-version", options->llama_version,
                    "2 or 3: blocks of 4k or 8k tokens as an Arrow folder, with the tokenizer of the current "
                    "folder; without --output it is "
                    "~/examples_datasets/wikicorpus_llama2_tokenized_4k or …llama3_tokenized_8k, and without "
                    "--input and --dataset the corpus is the raw English Wikicorpus of the caches")
        .one_of({2, 3});

    command.add_option("--inspect", options->inspect,
                       "check a token file and print its header and first rows");
    command.add_option("--rows", options->show_rows, "--inspect: how many rows").between(0, 1 << 30);
    command.set_action([options] { run_tokenize(*options); });
}

}  // namespace drover
