#pragma once

#include <string_view>

#include "io/pickle_nodes.h"
#include "io/stored_zip.h"

namespace drover {

/// Executes a pickle's instructions, building values and calling nothing; `folder` of the archive has the
/// storages (without an archive there are none). Error for an instruction or a name that is not on the list, and for an instruction that does not
/// match the stack. Fills `nodes` (whose `where` is given). Time and memory are bounded by the program's
/// size.
void run_pickle(std::string_view program, const StoredZip* zip, std::string_view folder, PickleNodes& nodes);

}  // namespace drover
