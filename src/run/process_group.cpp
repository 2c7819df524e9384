#include "run/process_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/failure.h"
#include "core/json.h"

namespace drover {
namespace {

std::unique_ptr<Communicator> everyone_of(World& world) {
    std::vector<int> ranks(static_cast<std::size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return world.make_communicator("processes", std::move(ranks));
}

}  // namespace

FailureOfRank own_failure(const std::exception_ptr& problem, std::string_view before_cause) {
    const auto shown = [&](std::string_view cause, std::string_view remedy, int exit_code) {
        return FailureOfRank(fmt::format("{}{}", before_cause, cause), remedy, exit_code, true);
    };
    try {
        std::rethrow_exception(problem);
    } catch (const Error& error) {
        return shown(error.cause(), error.remedy(), error.exit_code());
    } catch (const std::exception& failure) {
        const Error error = explain_failure(failure, "working in this process");
        return shown(error.cause(), error.remedy(), error.exit_code());
    }
}

ProcessGroup::ProcessGroup() : everyone_(make_self_communicator("processes")) {}

ProcessGroup::ProcessGroup(World& world) : everyone_(everyone_of(world)) {}

std::vector<std::string> ProcessGroup::gather(std::string_view text) const {
    if (size() == 1) return {std::string(text)};
    const auto count = static_cast<std::size_t>(size()), own = static_cast<std::size_t>(rank());
    std::vector<std::int64_t> lengths(count, 0);
    lengths[own] = static_cast<std::int64_t>(text.size());
    const Tensor all_lengths = Tensor::of(lengths.data(), {size()});
    everyone_->all_gather({}, all_lengths.rows(rank(), 1), all_lengths);
    const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    std::vector<std::string> texts;
    std::string padded(count * static_cast<std::size_t>(longest), '\0');
    if (longest > 0) {
        std::copy(text.begin(), text.end(),
                  padded.begin() + static_cast<std::ptrdiff_t>(own) * static_cast<std::ptrdiff_t>(longest));
        const Tensor whole(padded.data(), DType::u8, {size() * longest});
        everyone_->all_gather({}, whole.rows(rank() * longest, longest), whole);
    }
    for (std::size_t r = 0; r < count; ++r)
        texts.push_back(
            padded.substr(r * static_cast<std::size_t>(longest), static_cast<std::size_t>(lengths[r])));
    return texts;
}

std::string ProcessGroup::from_first(std::string_view text) const {
    if (size() == 1) return std::string(text);
    auto length = static_cast<std::int64_t>(text.size());
    everyone_->broadcast({}, Tensor::of(&length, {1}), 0);
    std::string received(is_first() ? text : std::string_view());
    received.resize(static_cast<std::size_t>(length));
    if (length > 0) everyone_->broadcast({}, Tensor(received.data(), DType::u8, {length}), 0);
    return received;
}

int ProcessGroup::largest(int number) const {
    if (size() == 1) return number;
    everyone_->all_reduce({}, Tensor::of(&number, {1}), Reduction::max);
    return number;
}

std::uint32_t ProcessGroup::united(std::uint32_t bits) const {
    if (size() == 1) return bits;
    std::vector<std::int32_t> all(static_cast<std::size_t>(size()));
    all[static_cast<std::size_t>(rank())] = static_cast<std::int32_t>(bits);
    const Tensor whole = Tensor::of(all.data(), {size()});
    everyone_->all_gather({}, whole.rows(rank(), 1), whole);
    for (const std::int32_t other : all) bits |= static_cast<std::uint32_t>(other);
    return bits;
}

void ProcessGroup::sum(std::span<float> numbers) const {
    if (size() == 1) return;
    everyone_->all_reduce({}, Tensor::of(numbers.data(), {static_cast<std::int64_t>(numbers.size())}),
                          Reduction::sum);
}

void ProcessGroup::meet() const {
    if (size() > 1) everyone_->barrier({});
}

void ProcessGroup::together(const std::function<void()>& work) const {
    if (size() == 1) return work();
    std::exception_ptr problem;
    try {
        work();
    } catch (const PeerFailure&) {
        throw;  // the others already know
    } catch (...) {
        problem = std::current_exception();
    }
    const int exit_code = problem ? own_failure(problem, "").exit_code() : 0;
    const std::vector<std::string> codes = gather(problem ? std::to_string(exit_code) : "");
    const auto failed = [](const std::string& code) { return !code.empty(); };
    const auto first = std::find_if(codes.begin(), codes.end(), failed);
    if (first == codes.end()) return;
    const auto speaker = static_cast<int>(first - codes.begin());
    const bool named = rank() != 0 && !std::all_of(codes.begin(), codes.end(), failed);
    if (speaker == rank()) throw own_failure(problem, named ? fmt::format("Rank {}: ", rank()) : "");
    throw FailureOfRank(fmt::format("Rank {} failed.", speaker), "", std::stoi(*first), false);
}

void ProcessGroup::in_turns(bool goes_first, const std::function<void()>& work) const {
    if (size() == 1) return work();
    for (const bool turn : {true, false})
        together([&] {
            if (goes_first == turn) work();
        });
}

void check_ranks_agree(const ProcessGroup& ranks, const NamedTexts& own, std::string_view remedy) {
    if (ranks.size() == 1) return;
    Json mine = Json::object();
    for (const auto& [name, text] : own) mine[name] = text;
    const Json first = Json::parse(ranks.from_first(mine.dump()));
    std::string differences;
    for (const auto& [name, text] : own)
        if (const auto found = first.find(name); found == first.end() || *found != text)
            differences += fmt::format("{}{} ({} there, {} on rank 0)", differences.empty() ? "" : "; ", name,
                                       text, found == first.end() ? "not known" : found->get<std::string>());
    const std::vector<std::string> all = ranks.gather(differences);
    std::string text;
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        if (!all[rank].empty())
            text += fmt::format("{}rank {} in {}", text.empty() ? "" : ", ", rank, all[rank]);
    if (text.empty()) return;
    throw FailureOfRank(fmt::format("The processes were not started alike: rank 0 differs from {}.", text),
                        remedy, 1, ranks.is_first());
}

}  // namespace drover
