#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/json.h"

namespace drover {

/// What an unquoted value is.
enum class YamlScalars {
    texts,  ///< its text
    typed,  ///< nothing, a boolean (true, yes, on, …), a number, or a text, as PyYAML reads it; 1e-5 is a
            ///< number
};

struct SimpleYaml {
    Json value;
    std::map<std::string, int, std::less<>> lines;  ///< of the keys of the outermost mapping, in the file
};

/// The subset of YAML that people write by hand: mappings and lists, on separate lines or in brackets on
/// one, plain and quoted strings, comments; one document. Keys are texts. `first_line` is the number of the
/// first line in the file, for errors. Error, with the line, for everything else.
SimpleYaml read_simple_yaml(std::string_view text, std::string_view file, int first_line = 1,
                            YamlScalars scalars = YamlScalars::texts);

/// Its value alone, with texts.
Json parse_simple_yaml(std::string_view text, std::string_view file, int first_line);

}  // namespace drover
