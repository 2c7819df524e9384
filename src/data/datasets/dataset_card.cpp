#include "data/datasets/dataset_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/simple_yaml.h"
#include "core/text_file.h"

namespace drover {
namespace {

/// The lines of the top-level key `configs` in the front matter (between the first "---" and the next).
struct Section {
    std::string text;
    int first_line = 0;
};

Section configs_section(std::string_view text) {
    Section section;
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    bool in_front = false, in_section = false;
    for (int number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line == "---") {
            if (in_front) break;
            in_front = true;
            continue;
        }
        if (!in_front) break;
        const bool top_level =
            !line.empty() && std::string_view(" -#\t").find(line[0]) == std::string_view::npos;
        if (top_level) in_section = line.starts_with("configs:");
        if (!in_section) continue;
        if (section.text.empty()) section.first_line = number;
        section.text.append(line).push_back('\n');
    }
    return section;
}

class CardReader {
  public:
    explicit CardReader(std::string file) : file_(std::move(file)) {}

    CardConfig config(const Json& entry) const {
        if (!entry.is_object()) fail("an entry of \"configs\" is not a mapping");
        CardConfig config;
        if (entry.contains("config_name")) config.name = text(entry["config_name"], "config_name");
        for (const auto& [key, value] : entry.items()) {
            if (key == "config_name" || key == "description") continue;
            if (key == "default")
                config.is_default = text(value, key) == "true";
            else if (key == "data_dir")
                config.data_dir = text(value, key);
            else if (key == "sep" || key == "delimiter")
                config.delimiter = text(value, key);
            else if (key == "field")
                config.field = text(value, key);
            else if (key == "data_files")
                config.data_files = data_files(value);
            else
                fail(fmt::format("the config \"{}\" sets \"{}\", which is not known", config.name, key));
        }
        return config;
    }

    [[noreturn]] void fail(std::string_view what) const {
        throw Error(fmt::format("{}: {}.", file_, what),
                    "Name the data files on the command line, or mend the front matter.");
    }

  private:
    std::string text(const Json& value, std::string_view key) const {
        if (!value.is_string()) fail(fmt::format("\"{}\" is not a string", key));
        return value.get<std::string>();
    }

    std::vector<std::string> patterns(const Json& value) const {
        if (!value.is_array()) return {text(value, "path")};
        std::vector<std::string> list;
        for (const Json& item : value) list.push_back(text(item, "path"));
        return list;
    }

    std::vector<CardConfig::Files> data_files(const Json& value) const {
        const bool by_split =
            value.is_array() &&
            std::any_of(value.begin(), value.end(), [](const Json& item) { return item.is_object(); });
        if (value.is_object()) {
            std::vector<CardConfig::Files> files;
            for (const auto& [split, paths] : value.items()) files.push_back({split, patterns(paths)});
            return files;
        }
        if (!by_split) return {{"train", patterns(value)}};
        std::vector<CardConfig::Files> files;
        for (const Json& item : value) {
            if (!item.is_object() || item.size() != 2 || !item.contains("split") || !item.contains("path"))
                fail("an item of \"data_files\" does not consist of \"split\" and \"path\"");
            const std::string split = text(item["split"], "split");
            if (std::any_of(files.begin(), files.end(),
                            [&](const auto& other) { return other.split == split; }))
                fail(fmt::format("\"data_files\" has the split \"{}\" twice", split));
            files.push_back({split, patterns(item["path"])});
        }
        return files;
    }

    std::string file_;
};

}  // namespace

std::vector<CardConfig> read_dataset_card(const std::filesystem::path& readme) {
    const Section section = configs_section(read_text_file(readme));
    if (section.text.empty()) return {};
    const Json top = [&] {
        try {
            return parse_simple_yaml(section.text, readme.string(), section.first_line);
        } catch (const Error& error) {
            throw Error(error.cause(),
                        "Write the configs as plain YAML, or name the data files on the command line.");
        }
    }();
    const CardReader reader(readme.string());
    if (!top["configs"].is_array()) reader.fail("\"configs\" is not a list");
    std::vector<CardConfig> configs;
    for (const Json& entry : top["configs"]) {
        configs.push_back(reader.config(entry));
        for (std::size_t i = 0; i + 1 < configs.size(); ++i)
            if (configs[i].name == configs.back().name)
                reader.fail(fmt::format("the config \"{}\" is there twice", configs[i].name));
    }
    return configs;
}

}  // namespace drover
