#pragma once

namespace drover {

/// From now on, if a mapped file is truncated while it is read, the program ends with a message that names
/// the file and exit code 1 instead of SIGBUS. Only for our own programs: it sets the process's handler of
/// that signal. Any other SIGBUS ends the program as before.
void name_shortened_files();

}  // namespace drover
