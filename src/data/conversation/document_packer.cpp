#include "data/conversation/document_packer.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>

#include "core/error.h"

namespace drover {
namespace {

/// A part of an example.
struct Fragment {
    std::size_t example;
    std::size_t begin, length;
};

void append(const TokenizedExample& example, std::size_t begin, std::size_t length, TokenRow& row) {
    const auto first = static_cast<std::ptrdiff_t>(begin), last = static_cast<std::ptrdiff_t>(begin + length);
    row.ids.insert(row.ids.end(), example.ids.begin() + first, example.ids.begin() + last);
    row.labels.insert(row.labels.end(), example.labels.begin() + first, example.labels.begin() + last);
}

/// What is packed: the examples, cut off or split at `most` tokens. Empty ones are left out.
std::vector<Fragment> fragments_of(const std::vector<TokenizedExample>& examples, std::size_t most,
                                   bool splits) {
    std::vector<Fragment> fragments;
    for (std::size_t i = 0; i < examples.size(); ++i) {
        const std::size_t size = examples[i].ids.size();
        for (std::size_t begin = 0; begin < size; begin += most) {
            fragments.push_back({i, begin, std::min(most, size - begin)});
            if (!splits) break;
        }
    }
    return fragments;
}

/// Best fit decreasing: the longest first, each into the fullest row that has room for it; of equally full
/// ones into the one that became so first.
std::vector<TokenRow> pack_best_fit(const std::vector<TokenizedExample>& examples, std::size_t most,
                                    bool splits) {
    std::vector<Fragment> fragments = fragments_of(examples, most, splits);
    std::stable_sort(fragments.begin(), fragments.end(),
                     [](const Fragment& a, const Fragment& b) { return a.length > b.length; });
    std::vector<TokenRow> rows;
    std::map<std::size_t, std::deque<std::size_t>> open;  // by free space: rows
    for (const Fragment& fragment : fragments) {
        std::size_t space = most, row = rows.size();
        if (const auto best = open.lower_bound(fragment.length); best != open.end()) {
            space = best->first;
            row = best->second.front();
            best->second.pop_front();
            if (best->second.empty()) open.erase(best);
        } else {
            rows.emplace_back();
        }
        append(examples[fragment.example], fragment.begin, fragment.length, rows[row]);
        rows[row].documents.push_back(static_cast<std::int32_t>(fragment.length));
        if (space > fragment.length) open[space - fragment.length].push_back(row);
    }
    return rows;
}

std::vector<TokenRow> pack_wrapped(const std::vector<TokenizedExample>& examples, std::size_t most) {
    std::vector<TokenRow> rows;
    for (const TokenizedExample& example : examples) {
        for (std::size_t begin = 0; begin < example.ids.size();) {
            if (rows.empty() || rows.back().ids.size() == most) rows.emplace_back();
            const std::size_t length = std::min(most - rows.back().ids.size(), example.ids.size() - begin);
            append(example, begin, length, rows.back());
            begin += length;
        }
    }
    for (TokenRow& row : rows) row.documents = {static_cast<std::int32_t>(row.ids.size())};
    return rows;
}

}  // namespace

std::vector<TokenRow> pack_documents(DocumentPacking packing, std::int64_t max_length,
                                     const std::vector<TokenizedExample>& examples) {
    require(max_length >= 1 && packing != DocumentPacking::none, "rows that are packed have a length");
    const auto most = static_cast<std::size_t>(max_length);
    if (packing == DocumentPacking::wrapped) return pack_wrapped(examples, most);
    return pack_best_fit(examples, most, packing == DocumentPacking::bfd_split);
}

void cut_example(TokenizedExample& example, std::int64_t max_length, KeptEnd kept) {
    require(max_length >= 1, "examples are cut to nothing");
    const auto most = static_cast<std::size_t>(max_length);
    for (std::vector<TokenId>* const values : {&example.ids, &example.labels}) {
        if (values->size() <= most) continue;
        if (kept == KeptEnd::start)
            values->resize(most);
        else
            values->erase(values->begin(), values->end() - static_cast<std::ptrdiff_t>(most));
    }
}

}  // namespace drover
