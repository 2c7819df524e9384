#include "text/chat/template_files.h"

#include <gtest/gtest.h>

#include "core/text_file.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using test::expect_error;
using test::TemporaryFolder;

std::string rendered(const ChatTemplate& chat_template) {
    ChatInputs inputs;
    inputs.messages = {{{"role", "user"}, {"content", "Hi"}}};
    return chat_template.render(inputs).text;
}

TEST(TemplateFiles, OneTextInTheConfig) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "tokenizer_config.json",
                          R"({"chat_template": "C {{ messages[0].content }}"})");
    EXPECT_EQ(rendered(load_chat_template(folder.path())), "C Hi");
    EXPECT_EQ(rendered(load_chat_template(folder.path(), true)), "C Hi");
}

TEST(TemplateFiles, AListInTheConfig) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "tokenizer_config.json", R"({"chat_template": [
        {"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}, {"name": "rag", "template": "R"}]})");
    EXPECT_EQ(rendered(load_chat_template(folder.path())), "D");
    EXPECT_EQ(rendered(load_chat_template(folder.path(), true)), "T");
    EXPECT_EQ(rendered(load_chat_template(folder.path(), true, "rag")), "R");
    EXPECT_EQ(load_chat_template(folder.path()).name(),
              (folder / "tokenizer_config.json").string() + ", chat_template \"default\"");
    expect_error([&] { load_chat_template(folder.path(), false, "none"); },
                 {"\"none\"", "default, tool_use, rag"});
}

TEST(TemplateFiles, FilesComeBeforeTheConfig) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "tokenizer_config.json", R"({"chat_template": "C"})");
    write_file_atomically(folder / "chat_template.jinja", "F\n");
    EXPECT_EQ(rendered(load_chat_template(folder.path())), "F");
    std::filesystem::create_directory(folder / "additional_chat_templates");
    write_file_atomically(folder / "additional_chat_templates/tool_use.jinja", "U");
    write_file_atomically(folder / "additional_chat_templates/notes.txt", "N");
    EXPECT_EQ(rendered(load_chat_template(folder.path(), true)), "U");
    EXPECT_EQ(rendered(load_chat_template(folder.path(), false)), "F");
    EXPECT_EQ(find_chat_templates(folder.path()).size(), 2u);
}

TEST(TemplateFiles, AFileAlone) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "mine.jinja", "M{{ messages | length }}");
    EXPECT_EQ(rendered(load_chat_template(folder / "mine.jinja")), "M1");
    expect_error([&] { load_chat_template(folder / "yours.jinja"); }, {"yours.jinja"});
}

TEST(TemplateFiles, FoldersWithoutOne) {
    const TemporaryFolder folder;
    EXPECT_TRUE(find_chat_templates(folder.path()).empty());
    expect_error([&] { load_chat_template(folder.path()); },
                 {"has no chat template", "--chat_template_path"});
    write_file_atomically(folder / "tokenizer_config.json", R"({"chat_template": 3})");
    expect_error([&] { load_chat_template(folder.path()); }, {"tokenizer_config.json", "chat_template"});
    std::filesystem::create_directory(folder / "additional_chat_templates");
    write_file_atomically(folder / "additional_chat_templates/rag.jinja", "R");
    expect_error([&] { load_chat_template(folder.path()); }, {"\"default\"", "It has: rag"});
}

TEST(TemplateFiles, SpecialTokensByRole) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "tokenizer_config.json",
                          R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null})");
    EXPECT_EQ(named_special_tokens(folder.path()), (Json{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
}

TEST(ChatTemplate, RefusesWhatIsNoConversation) {
    const ChatTemplate any("x", "any");
    ChatInputs inputs;
    expect_error([&] { any.render(inputs); }, {"no messages"});
    inputs.messages = Json{{"role", "user"}};
    expect_error([&] { any.render(inputs); }, {"no messages"});
    inputs.messages = {{{"role", "user"}, {"content", "Hi"}}};
    inputs.tools = {"weather"};
    expect_error([&] { any.render(inputs); }, {"tools"});
    inputs.tools = nullptr;
    inputs.documents = 3;
    expect_error([&] { any.render(inputs); }, {"documents"});
    inputs.documents = nullptr;
    inputs.variables = {{"messages", 1}};
    expect_error([&] { any.render(inputs); }, {"\"messages\"", "twice"});
    inputs.variables = {{"huge", 18446744073709551615u}};
    expect_error([&] { any.render(inputs); }, {"64 bits"});
    inputs.variables = {{"bytes", "\xff"}};
    expect_error([&] { any.render(inputs); }, {"UTF-8"});
}

}  // namespace
}  // namespace drover
