#include "text/chat/template_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "text/json_fields.h"
#include "text/side_files.h"
#include "text/tokenizer.h"

namespace drover {
namespace {

std::vector<ChatTemplateText> templates_of_files(const std::filesystem::path& folder) {
    std::vector<ChatTemplateText> templates;
    const auto add = [&](std::string name, const std::filesystem::path& path) {
        templates.push_back({std::move(name), path.string(), read_text_file(path)});
    };
    if (const auto path = folder / "chat_template.jinja"; std::filesystem::exists(path)) add("default", path);
    for (const auto& path : more_template_files(folder)) add(path.stem().string(), path);
    return templates;
}

std::vector<ChatTemplateText> templates_of_config(const std::filesystem::path& path) {
    std::vector<ChatTemplateText> templates;
    if (!std::filesystem::exists(path)) return templates;
    const Json config = read_json_file(path);
    const JsonFields fields(config, path.string());
    const Json* given = fields.find("chat_template");
    if (!given) return templates;
    const std::string where = fmt::format("{}, chat_template", path.string());
    if (given->is_string()) {
        templates.push_back({"default", where, given->get<std::string>()});
        return templates;
    }
    if (!given->is_array()) fields.wrong("chat_template", "a text or a list of {\"name\", \"template\"}");
    for (const Json& entry : *given) {
        const JsonFields one(entry, where);
        const std::string name = one.text("name");
        templates.push_back({name, fmt::format("{} \"{}\"", where, name), one.text("template")});
    }
    return templates;
}

}  // namespace

std::vector<ChatTemplateText> find_chat_templates(const std::filesystem::path& folder) {
    std::vector<ChatTemplateText> templates = templates_of_files(folder);
    return templates.empty() ? templates_of_config(folder / "tokenizer_config.json") : templates;
}

const ChatTemplateText& choose_chat_template(const std::vector<ChatTemplateText>& templates,
                                             const std::filesystem::path& folder, bool with_tools,
                                             std::string_view name) {
    const auto find = [&](std::string_view wanted) {
        // Of two with one name the later counts, as in a dict.
        const auto found = std::find_if(templates.rbegin(), templates.rend(),
                                        [&](const ChatTemplateText& text) { return text.name == wanted; });
        return found == templates.rend() ? nullptr : &*found;
    };
    const ChatTemplateText* chosen = name.empty() ? nullptr : find(name);
    if (name.empty() && with_tools) chosen = find("tool_use");
    if (name.empty() && !chosen) chosen = find("default");
    if (chosen) return *chosen;
    if (templates.empty())
        throw Error(fmt::format("{} has no chat template.", folder.string()),
                    "Add a chat_template.jinja, or name a template with --chat_template_path.");
    std::vector<std::string> names;
    for (const ChatTemplateText& text : templates) names.push_back(text.name);
    throw Error(fmt::format("{} has no chat template called \"{}\".", folder.string(),
                            name.empty() ? "default" : name),
                fmt::format("It has: {}. Name one of them.", fmt::join(names, ", ")));
}

ChatTemplate load_chat_template(const std::filesystem::path& path, bool with_tools, std::string_view name) {
    if (!std::filesystem::exists(path))
        throw Error(fmt::format("There is no chat template at {}.", path.string()),
                    "Name a file with a template, or the folder of a tokenizer.");
    if (!std::filesystem::is_directory(path)) return {read_text_file(path), path.string()};
    const std::vector<ChatTemplateText> templates = find_chat_templates(path);
    const ChatTemplateText& chosen = choose_chat_template(templates, path, with_tools, name);
    return {chosen.text, chosen.where};
}

Json named_special_tokens(const std::filesystem::path& folder) {
    Json tokens = Json::object();
    for (const auto& [role, token] : SideFiles(folder).named) tokens[role] = token.content;
    return tokens;
}

}  // namespace drover
