#include "text/char_class.h"

#include <unicode/uchar.h>

#include <utility>
#include <vector>

namespace drover {
namespace {

using Ranges = std::vector<std::pair<UChar32, UChar32>>;

// Assigned by Unicode 15.1 and 16.0. ICU is used only for older characters, so that the result does not
// depend on its version.
const Ranges newer_letters{{0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3},
                           {0x10D4A, 0x10D65}, {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x11380, 0x11389},
                           {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7},
                           {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0}, {0x13460, 0x143FA},
                           {0x16100, 0x1611D}, {0x16D40, 0x16D6C}, {0x18CFF, 0x18CFF}, {0x1E5D0, 0x1E5ED},
                           {0x1E5F0, 0x1E5F0}, {0x2EBF0, 0x2EE5D}};
const Ranges newer_numbers{{0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x16130, 0x16139},
                           {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA}};

bool assigned_by_15_0(UChar32 c) {
    UVersionInfo age;
    u_charAge(c, age);
    return age[0] < 15 || (age[0] == 15 && age[1] == 0);
}

std::uint8_t classify(UChar32 c) {
    const auto category = U_GET_GC_MASK(c);
    std::uint8_t bits = 0;
    if (category & U_GC_L_MASK) bits |= char_class::letter;
    if (category & U_GC_N_MASK) bits |= char_class::number;
    if (u_isUWhiteSpace(c)) bits |= char_class::space;
    if (category & U_GC_P_MASK) bits |= char_class::punctuation;
    if (category & U_GC_M_MASK) bits |= char_class::mark;
    if (u_isUAlphabetic(c) || (category & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) ||
        u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL))
        bits |= char_class::word;
    return bits;
}

std::vector<std::uint8_t> make_table() {
    std::vector<std::uint8_t> table(0x110000);
    for (UChar32 c = 0; c < 0x110000; ++c)
        if (assigned_by_15_0(c)) table[static_cast<std::size_t>(c)] = classify(c);
    for (const auto& [ranges, bits] :
         {std::pair{&newer_letters, char_class::letter}, std::pair{&newer_numbers, char_class::number}})
        for (const auto& [first, last] : *ranges)
            for (UChar32 c = first; c <= last; ++c)
                table[static_cast<std::size_t>(c)] = bits | char_class::word;
    return table;
}

}  // namespace

const std::uint8_t* char_classes() {
    static const std::vector<std::uint8_t> table = make_table();
    return table.data();
}

}  // namespace drover
