#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "args/arguments.h"

namespace drover {

/// Sets arguments from the words of a command line. Conventions are those of Hugging Face's argument parser
/// on argparse: `--x v`, `--x=v`, hyphens or underscores, unique prefixes, bare booleans, `--no_x`; and `-v`
/// for `--verbose`. The last
/// of a repeated flag counts; lists are collected. UsageError names the word that is wrong.
void parse_words(Arguments& arguments, std::span<const std::string> words, const ArgumentSource& source);

/// The words of an .args file: separated by white space, without quoting.
std::vector<std::string> words_of_file(const std::filesystem::path& path);

}  // namespace drover
