# Installs what `drover man` and `drover completion` print: the page of the program, those that it names, and the
# completions of three shells. Run at install time (DroverInstall.cmake), with `program`, `work_folder`, where the files
# are written first, `man_folder` and `data_folder`.

cmake_policy(VERSION 3.25)

file(REMOVE_RECURSE "${work_folder}")
file(MAKE_DIRECTORY "${work_folder}/man" "${work_folder}/bash" "${work_folder}/zsh" "${work_folder}/fish")
function(write_output file)
  execute_process(COMMAND "${program}" ${ARGN} OUTPUT_FILE "${work_folder}/${file}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

write_output(man/drover.1 man)
file(READ "${work_folder}/man/drover.1" page)
string(REGEX MATCHALL "drover\\\\?-[a-z0-9_]+\\(1\\)" names "${page}")
list(REMOVE_DUPLICATES names)
foreach(name IN LISTS names)
  string(REGEX REPLACE ".*-(.*)\\(1\\)" "\\1" command "${name}")
  write_output(man/drover-${command}.1 man ${command})
endforeach()
write_output(bash/drover completion bash)
write_output(zsh/_drover completion zsh)
write_output(fish/drover.fish completion fish)

file(INSTALL "${work_folder}/man/" DESTINATION "${man_folder}" FILES_MATCHING PATTERN *.1)
file(INSTALL "${work_folder}/bash/drover" DESTINATION "${data_folder}/bash-completion/completions")
file(INSTALL "${work_folder}/zsh/_drover" DESTINATION "${data_folder}/zsh/site-functions")
file(INSTALL "${work_folder}/fish/drover.fish" DESTINATION "${data_folder}/fish/vendor_completions.d")
