# What an installed tree has besides programs and libraries, for `cmake --install … --component program` and for
# packages: documentation, examples, manual pages, completions.

install(FILES README.md LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(DIRECTORY docs bench DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program FILES_MATCHING PATTERN *.md)
# In share/drover and not with the documentation, which small systems do not install; there are links where the
# documentation expects them. src/app installs the configs, which the program itself reads.
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/drover COMPONENT program USE_SOURCE_PERMISSIONS
        PATTERN configs EXCLUDE PATTERN __pycache__ EXCLUDE)
file(RELATIVE_PATH examples_from_docs ${CMAKE_INSTALL_FULL_DOCDIR} ${CMAKE_INSTALL_FULL_DATADIR}/drover/examples)
install(CODE "
  set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
  file(CREATE_LINK ../configs \"\${prefix}/${CMAKE_INSTALL_DATADIR}/drover/examples/configs\" SYMBOLIC)
  file(CREATE_LINK \"${examples_from_docs}\" \"\${prefix}/${CMAKE_INSTALL_DOCDIR}/examples\" SYMBOLIC)
" COMPONENT program)

# The program itself writes its manual pages and completions.
install(CODE "
  set(program \"$<TARGET_FILE:drover>\")
  set(man_folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\")
  set(data_folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
  include(\"${CMAKE_SOURCE_DIR}/cmake/InstallManuals.cmake\")
" COMPONENT program)
