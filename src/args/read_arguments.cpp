#include "args/read_arguments.h"

#include <fmt/format.h>

#include "args/argument_file.h"
#include "args/parse_words.h"

namespace drover {

Arguments read_arguments(const ArgumentTable& table, std::span<const std::string> words,
                         const ParseOptions& options) {
    Arguments arguments(table);
    std::vector<std::string> flags(words.begin(), words.end());
    std::error_code ignored;
    std::optional<ArgumentFile> named;
    if (options.file == nullptr) named = take_argument_file(table, flags);
    if (const ArgumentFile* file = named ? &*named : options.file)
        set_from_file(arguments, *file);
    else if (!options.args_file.empty() && std::filesystem::is_regular_file(options.args_file, ignored))
        parse_words(arguments, words_of_file(options.args_file),
                    {ArgumentSource::Kind::file, options.args_file.string()});
    parse_words(arguments, flags, {.kind = ArgumentSource::Kind::command_line});
    return arguments;
}

void explain_given(Arguments& arguments) {
    for (const ArgumentGroup& group : arguments.table().groups())
        for (const Argument& argument : group.arguments)
            if (!argument.note.empty() && arguments.given(argument.name) &&
                arguments.source(argument.name).kind != ArgumentSource::Kind::environment)
                arguments.explain(fmt::format("--{}: {}", argument.name, argument.note));
}

void explain_lone_process(Arguments& arguments, const ParseOptions& options) {
    const auto found = options.environment.find("WORLD_SIZE");
    if (options.world_size == 1 && found != options.environment.end() && found->second != "1")
        arguments.explain(fmt::format(
            "WORLD_SIZE is {}, but neither mpirun nor srun started this process, so it trains alone.",
            found->second));
}

}  // namespace drover
