#include "text/chat/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"

namespace drover {
namespace {

constexpr std::array own_variables{"messages", "tools", "documents", "add_generation_prompt"};

/// Error unless `value` is null or an array of objects.
void expect_objects(const Json& value, std::string_view what) {
    const bool objects = value.is_array() && std::all_of(value.begin(), value.end(),
                                                         [](const Json& item) { return item.is_object(); });
    if (!value.is_null() && !objects)
        throw Error(fmt::format("The {} of a conversation are not a list of objects.", what),
                    fmt::format("Give the {} as a JSON array of objects, or none.", what));
}

}  // namespace

RenderedChat ChatTemplate::render(const ChatInputs& inputs, const jinja::Limits& limits) const {
    if (!inputs.messages.is_array() || inputs.messages.empty())
        throw Error("A conversation has no messages.", "Give it at least one, in a JSON array.");
    expect_objects(inputs.tools, "tools");
    expect_objects(inputs.documents, "documents");
    for (const char* name : own_variables)
        if (inputs.variables.contains(name))
            throw Error(fmt::format("\"{}\" is given to a chat template twice.", name),
                        "Leave it out of the template's other variables.");

    const Json prompt = inputs.add_generation_prompt;
    std::vector<jinja::Variable> variables = {{"messages", &inputs.messages},
                                              {"tools", &inputs.tools},
                                              {"documents", &inputs.documents},
                                              {"add_generation_prompt", &prompt}};
    for (const Json* object : {&inputs.special_tokens, &inputs.variables})
        for (const auto& [name, value] : object->items()) variables.emplace_back(name, &value);
    jinja::Rendered rendered =
        template_.render(variables, inputs.now.value_or(std::chrono::system_clock::now()), limits);
    return {std::move(rendered.text), std::move(rendered.generated)};
}

}  // namespace drover
