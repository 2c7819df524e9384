# Writes what `drover man` and `drover completion` print into the install tree: one page for the program and one
# for each of its commands. Run at install time (DroverInstall.cmake), with `program`, `man_folder` and
# `data_folder`.

cmake_policy(VERSION 3.25)

execute_process(COMMAND "${program}" --help OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE ".*\nSubcommands:\n" "\n" help "${help}")
string(REGEX MATCHALL "\n  [a-z][a-z0-9_-]*" commands "${help}")
list(TRANSFORM commands STRIP)

# Stops the installation when the program cannot write what is asked of it.
function(write_output file)
  execute_process(COMMAND "${program}" ${ARGN} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  message(STATUS "Installing: ${file}")
  file(WRITE "${file}" "${text}")
endfunction()

if("man" IN_LIST commands)
  write_output("${man_folder}/drover.1" man)
  foreach(command IN LISTS commands)
    write_output("${man_folder}/drover-${command}.1" man ${command})
  endforeach()
endif()
if("completion" IN_LIST commands)
  write_output("${data_folder}/bash-completion/completions/drover" completion bash)
  write_output("${data_folder}/zsh/site-functions/_drover" completion zsh)
  write_output("${data_folder}/fish/vendor_completions.d/drover.fish" completion fish)
endif()
