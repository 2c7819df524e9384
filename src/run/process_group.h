#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "train/state/agreed_error.h"

namespace drover {

/// What went wrong on some ranks, as every rank learns of it. One of them shows it: the text of the others
/// is short.
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

/// What is being thrown, as this rank shows it.
FailureOfRank own_failure(const std::exception_ptr& problem, std::string_view before_cause);

/// The processes of a run and what they tell each other besides tensors. Everything but the counts is
/// collective. Messages go through the host's memory, whatever device computes.
class ProcessGroup {
  public:
    /// One process, which has nobody to talk to.
    ProcessGroup();
    /// The world must outlive it.
    explicit ProcessGroup(World& world);

    int rank() const { return everyone_->rank(); }
    int size() const { return everyone_->size(); }
    bool is_first() const { return rank() == 0; }

    /// Every rank's text, in their order.
    std::vector<std::string> gather(std::string_view text) const;
    /// The first rank's text, everywhere.
    std::string from_first(std::string_view text) const;
    int largest(int number) const;
    void meet() const;

    /// Does the work on every rank. When it throws on some, every rank throws FailureOfRank: the first of
    /// those shows what it was, with its rank in front when others were spared (but not 0, which speaks for
    /// all).
    void together(const std::function<void()>& work) const;
    /// Does the work of the ranks for which `goes_first` holds before that of the others, likewise together.
    void in_turns(bool goes_first, const std::function<void()>& work) const;

  private:
    std::unique_ptr<Communicator> everyone_;
};

/// Something that must be alike on all ranks, and what it is here.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

/// FailureOfRank that names the ranks that differ from the first one, and in what.
void check_ranks_agree(
    const ProcessGroup& ranks, const NamedTexts& own,
    std::string_view remedy = "Start all of them with one program, one command line and the same files.");

}  // namespace drover
