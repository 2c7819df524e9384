# What an installed tree has besides programs and libraries, for `cmake --install … --component program` and for
# packages: documentation, examples, manual pages, completions.

install(FILES README.md LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(DIRECTORY docs bench DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program FILES_MATCHING PATTERN *.md)
# In share/drover and not with the documentation, which small systems do not install; there are links where the
# documentation expects them. src/app installs the configs, which the program itself reads.
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/drover COMPONENT program USE_SOURCE_PERMISSIONS
        PATTERN configs EXCLUDE PATTERN __pycache__ EXCLUDE)
set(links ${CMAKE_BINARY_DIR}/installed_links)
file(MAKE_DIRECTORY ${links})
file(RELATIVE_PATH examples_from_docs ${CMAKE_INSTALL_FULL_DOCDIR} ${CMAKE_INSTALL_FULL_DATADIR}/drover/examples)
file(CREATE_LINK ${examples_from_docs} ${links}/examples SYMBOLIC)
file(CREATE_LINK ../configs ${links}/configs SYMBOLIC)
install(FILES ${links}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(FILES ${links}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/drover/examples COMPONENT program)

# The program itself writes its manual pages and completions. Their folders may be absolute, as distributions give them.
set(man_folder ${CMAKE_INSTALL_MANDIR}/man1)
set(data_folder ${CMAKE_INSTALL_DATADIR})
foreach(folder IN ITEMS man_folder data_folder)
  if(NOT IS_ABSOLUTE ${${folder}})
    string(PREPEND ${folder} "\${CMAKE_INSTALL_PREFIX}/")
  endif()
endforeach()
install(CODE "
  set(program \"$<TARGET_FILE:drover>\")
  set(work_folder \"${CMAKE_BINARY_DIR}/manuals\")
  set(man_folder \"${man_folder}\")
  set(data_folder \"${data_folder}\")
  include(\"${CMAKE_SOURCE_DIR}/cmake/InstallManuals.cmake\")
" COMPONENT program)
