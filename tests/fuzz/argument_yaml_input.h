#pragma once

#include <string_view>

#include "args/argument_file.h"
#include "args/argument_name.h"
#include "core/json_text.h"
#include "fuzz/accepts.h"

namespace drover::test {

/// YAML files of arguments: those of sft, whose table is the largest. JSON arguments that name files would
/// make the outcome depend on the machine.
inline bool accepts_argument_yaml(std::string_view text) {
    return accepts([&] {
        const ArgumentFile file = parse_argument_file(sft_table(), text, "input.yaml");
        for (const auto& [key, value] : file.values.items()) {
            require(file.lines.contains(key), "a key without a line");
            if (const Argument* argument = argument_of_key(sft_table(), key);
                argument != nullptr && argument->type == ArgumentType::json && value.is_string())
                throw Error("The input names a file.", "Leave it out.");
        }
        Arguments arguments(sft_table());
        set_from_file(arguments, file);
        // What was read can be written.
        sorted_json_text(arguments.to_json(), 1);
    });
}

}  // namespace drover::test
