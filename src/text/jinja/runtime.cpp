#include "text/jinja/runtime.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/number_text.h"
#include "text/jinja/characters.h"

namespace drover::jinja {

void Runtime::fail(std::string_view what) const {
    throw Error(fmt::format("{}, line {}: {}.", template_name_, line_, what),
                "Correct the template, or give the conversation what it needs.");
}

void Runtime::refuse(std::string_view why) const {
    const bool ends = !why.empty() && (why.back() == '.' || why.back() == '!' || why.back() == '?');
    throw Error(fmt::format("{}, line {}, refuses the conversation: {}{}", template_name_, line_, why,
                            ends ? "" : "."),
                "Change the conversation, or use another template.");
}

void Runtime::too_much(std::string_view what) const {
    throw Error(fmt::format("{}, line {}: {}.", template_name_, line_, what),
                "A chat template needs far less; correct its loops and calls.");
}

void Runtime::step(std::size_t count) {
    steps_ += count;
    if (steps_ > limits_.steps)
        too_much(fmt::format("rendering took more than {} steps",
                             with_thousands(static_cast<std::int64_t>(limits_.steps))));
}

void Runtime::search(std::size_t size, std::size_t wanted) {
    const std::size_t places = size < wanted ? 0 : size - wanted + 1;
    step(size / 8 + places * (wanted / 64));
}

void Runtime::expect_room(std::size_t bytes) {
    if (bytes > limits_.bytes - bytes_)
        too_much(fmt::format("rendering made more than {} of values", bytes_text(limits_.bytes)));
}

void Runtime::take(std::size_t bytes) {
    expect_room(bytes);
    bytes_ += bytes;
    step(bytes / 64);
}

void Runtime::enter() {
    if (depth_ == limits_.depth) too_much(fmt::format("more than {} levels of nesting", limits_.depth));
    ++depth_;
}

Value Runtime::text(std::string bytes, bool markup) {
    TextObject& object = make<TextObject>(bytes.size());
    object.characters = character_count(bytes);
    object.bytes = std::move(bytes);
    object.markup = markup;
    return {Kind::text, &object};
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
    SequenceObject& object = make<SequenceObject>(items.size() * sizeof(Value));
    object.items = std::move(items);
    return {kind, &object};
}

Value Runtime::iterator(std::vector<Value> items) {
    IteratorObject& object = make<IteratorObject>(items.size() * sizeof(Value));
    object.items = std::move(items);
    return {Kind::iterator, &object};
}

Value Runtime::undefined(std::string message) {
    UndefinedObject& object = make<UndefinedObject>(message.size());
    object.message = std::move(message);
    return {Kind::undefined, &object};
}

DictObject& Runtime::dict() {
    return make<DictObject>();
}

}  // namespace drover::jinja
