#include <cstdlib>

namespace drover::test {
namespace {

/// No test uses the network. Those of the Hub play it on this machine, and allow themselves that.
[[maybe_unused]] const bool offline = setenv("HF_HUB_OFFLINE", "1", 1) == 0;

}  // namespace
}  // namespace drover::test
