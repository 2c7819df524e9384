#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "train/state/agreed_error.h"

namespace drover {

/// A failure on some ranks, as every rank learns of it. One of them shows it; on the others the text is
/// short.
class FailureOfRank final : public AgreedError {
  public:
    FailureOfRank(std::string_view cause, std::string_view remedy, int exit_code, bool shown_here)
        : AgreedError(cause, remedy), exit_code_(exit_code), shown_here_(shown_here) {}
    int exit_code() const override { return exit_code_; }
    bool shown_here() const { return shown_here_; }

  private:
    int exit_code_;
    bool shown_here_;
};

/// The exception being handled, as this rank shows it.
FailureOfRank own_failure(const std::exception_ptr& problem, std::string_view before_cause);

/// The processes of a run and what they exchange apart from tensors. Everything but the counts is collective.
/// Messages go through host memory, whatever the compute device.
class ProcessGroup {
  public:
    /// A single process.
    ProcessGroup();
    /// The world must outlive this object.
    explicit ProcessGroup(World& world);

    int rank() const { return everyone_->rank(); }
    int size() const { return everyone_->size(); }
    bool is_first() const { return rank() == 0; }

    /// The texts of all ranks, in rank order.
    std::vector<std::string> gather(std::string_view text) const;
    /// The first rank's text, on every rank.
    std::string from_first(std::string_view text) const;
    int largest(int number) const;
    /// The bits that are set on any rank.
    std::uint32_t united(std::uint32_t bits) const;
    /// Replaces the numbers by their sums over all ranks.
    void sum(std::span<float> numbers) const;
    void meet() const;

    /// Does the work on every rank. If it throws on some, every rank throws FailureOfRank. The first of those
    /// that failed shows the reason, prefixed with its rank if others did not fail (except rank 0, which
    /// needs no prefix).
    void together(const std::function<void()>& work) const;
    /// Like together(), but the ranks with `goes_first` do the work before the others.
    void in_turns(bool goes_first, const std::function<void()>& work) const;

  private:
    std::unique_ptr<Communicator> everyone_;
};

/// Names and values of things that must be the same on all ranks.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

/// FailureOfRank naming the ranks that differ from the first one, and what differs.
void check_ranks_agree(
    const ProcessGroup& ranks, const NamedTexts& own,
    std::string_view remedy = "Start all of them with one program, one command line and the same files.");

}  // namespace drover
