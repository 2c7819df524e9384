#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>

#include "core/error.h"
#include "text/utf8.h"

namespace drover {
namespace {

std::string message_of(int code) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(code, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
}

/// The meaning of a class letter after a backslash in Oniguruma, as members of a bracket; "" for all others.
std::string_view class_members(char letter) {
    switch (letter) {
        case 's':
            return R"(\p{White_Space})";
        case 'w':
            return R"(\p{L}\p{M}\p{Nd}\p{Pc})";
        case 'h':
            return "0-9a-fA-F";
        default:
            return "";
    }
}

}  // namespace

std::string pcre_pattern(std::string_view pattern) {
    std::string result;
    int brackets = 0;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        const char c = pattern[i];
        if (c != '\\' || i + 1 == pattern.size()) {
            if (c == '[') ++brackets;
            if (c == ']' && brackets > 0) --brackets;
            result += c;
            continue;
        }
        const char next = pattern[++i];
        const std::string_view inside = class_members(next);
        if (next == 'S') {
            result += R"(\P{White_Space})";
        } else if (!inside.empty() && brackets > 0) {
            result += inside;
        } else if (!inside.empty()) {
            result.append("[").append(inside).append("]");
        } else if (next == 'W' && brackets == 0) {
            result.append("[^").append(class_members('w')).append("]");
        } else {
            result += c;
            result += next;
        }
    }
    return result;
}

struct Regex::Code {
    pcre2_code* code = nullptr;
    ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, std::string_view where) : code_(std::make_unique<Code>()) {
    const std::string translated = pcre_pattern(pattern);
    int error = 0;
    PCRE2_SIZE place = 0;
    code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                                &place, nullptr);
    if (!code_->code)
        throw Error(fmt::format("{} has a regular expression that is not understood: {} (in {}).", where,
                                message_of(error), pattern),
                    "Use a tokenizer whose pattern PCRE2 accepts.");
    pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);  // without it matching is only slower
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
    struct Memory {
        pcre2_match_data* data;
        pcre2_match_context* context = pcre2_match_context_create(nullptr);
        pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, 64 * 1024 * 1024, nullptr);
        explicit Memory(const pcre2_code* code) : data(pcre2_match_data_create_from_pattern(code, nullptr)) {
            pcre2_jit_stack_assign(context, nullptr, stack);
        }
        ~Memory() {
            pcre2_jit_stack_free(stack);
            pcre2_match_context_free(context);
            pcre2_match_data_free(data);
        }
    } memory(code_->code);
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    std::size_t at = 0;
    while (at < text.size()) {
        const int count = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, memory.data,
                                      memory.context);
        if (count == PCRE2_ERROR_NOMATCH) return;
        if (count < 0)
            throw Error(fmt::format("The tokenizer's regular expression failed on a text of {} bytes: {}.",
                                    text.size(), message_of(count)),
                        "Cut the text into shorter rows.");
        const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(memory.data);
        if (ends[1] > ends[0]) matches.push_back({ends[0], ends[1]});
        at = ends[1] > ends[0]       ? ends[1]
             : ends[1] < text.size() ? ends[1] + decode_utf8(text.substr(ends[1])).length
                                     : text.size();
    }
}

}  // namespace drover
