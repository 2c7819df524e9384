#pragma once

#include <string>
#include <string_view>

#include "args/argument_file.h"
#include "args/argument_table.h"
#include "args/parse_arguments.h"
#include "core/json_text.h"
#include "fuzz/accepts.h"

namespace drover::test {

/// The settings of a JSON file of arguments, whose --fsdp_config and --deepspeed are objects in it.
inline RunArguments read_settings(std::string_view text) {
    Arguments arguments;
    set_from_file(arguments, parse_argument_file(run_clm_table(), text, "input.json"));
    return settle_run_arguments(std::move(arguments), {});
}

/// Objects given by the path of a file would make the outcome depend on the machine.
inline bool names_a_file(const Json& object) {
    if (!object.is_object()) return false;
    for (const auto& [key, value] : object.items()) {
        const std::string_view name = run_clm_table().first_name_of(key);
        if (!name.empty() && run_clm_table().find(name)->type == ArgumentType::json && value.is_string())
            return true;
    }
    return false;
}

inline bool accepts_settings(std::string_view text) {
    return accepts([&] {
        const Json object = parse_json(text, "input");
        if (names_a_file(object)) throw Error("The input names a file.", "Leave it out.");
        const std::string saved = sorted_json_text(read_settings(text).arguments.to_json(), 1);
        const RunArguments again = read_settings(saved);
        require(sorted_json_text(again.arguments.to_json(), 1) == saved,
                "saved arguments read back as others");
    });
}

}  // namespace drover::test
