#include "text/post_processor.h"

#include <fmt/format.h>

#include "text/json_fields.h"
#include "text/vocabulary.h"

namespace drover {
namespace {

TokenId read_id(const Json& value, const JsonFields& fields, std::string_view key) {
    if (!value.is_number_integer() || value < 0 || value > Vocabulary::largest_id)
        fields.wrong(key, "a list of token ids");
    return value.get<TokenId>();
}

Surroundings read_template(const JsonFields& fields) {
    Surroundings around;
    bool text_seen = false;
    for (const Json& item : fields.list("single")) {
        const JsonFields part(item, fields.where() + ".single");
        if (part.find("Sequence")) {
            if (text_seen) fields.wrong("single", "a template with one sequence");
            text_seen = true;
            continue;
        }
        const std::string name = JsonFields(part.at("SpecialToken"), part.where()).text("id");
        const JsonFields known(fields.at("special_tokens"), fields.where() + ".special_tokens");
        const JsonFields token(known.at(name), fmt::format("{}.{}", known.where(), name));
        for (const Json& id : token.list("ids"))
            (text_seen ? around.after : around.before).push_back(read_id(id, token, "ids"));
    }
    if (!text_seen) fields.wrong("single", "a template with a sequence");
    return around;
}

/// "cls" and "sep" of BERT's and RoBERTa's processors: [token, id].
TokenId read_pair(const JsonFields& fields, std::string_view key) {
    const Json& pair = fields.list(key);
    if (pair.size() != 2) fields.wrong(key, "a token and its id");
    return read_id(pair[1], fields, key);
}

}  // namespace

Surroundings read_post_processor(const Json& description, const std::string& where) {
    if (description.is_null()) return {};
    const JsonFields fields(description, where);
    const std::string type = fields.text("type");
    if (type == "TemplateProcessing") return read_template(fields);
    const bool trims = fields.flag("trim_offsets", true), prefix = fields.flag("add_prefix_space", true);
    if (type == "ByteLevel") return {{}, {}, trims, prefix};
    if (type == "BertProcessing") return {{read_pair(fields, "cls")}, {read_pair(fields, "sep")}};
    if (type == "RobertaProcessing")
        return {{read_pair(fields, "cls")}, {read_pair(fields, "sep")}, trims, prefix};
    if (type != "Sequence") unsupported_component(fields, type);

    Surroundings around;
    const Json& members = fields.list("processors");
    for (std::size_t i = 0; i < members.size(); ++i) {
        const Surroundings outer = read_post_processor(members[i], fmt::format("{}[{}]", where, i));
        around.before.insert(around.before.begin(), outer.before.begin(), outer.before.end());
        around.after.insert(around.after.end(), outer.after.begin(), outer.after.end());
        if (outer.trims_spaces)
            around.trims_spaces = true, around.adds_prefix_space = outer.adds_prefix_space;
    }
    return around;
}

}  // namespace drover
