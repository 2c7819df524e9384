#pragma once

namespace drover {

/// From now on, a mapped file that somebody makes shorter while it is read ends the program with a sentence
/// that names it and exit code 1, and not with SIGBUS. For programs of our own: it sets the process's handler
/// of that signal. What else raises SIGBUS ends the program as before.
void name_shortened_files();

}  // namespace drover
