# drover_library(core USES fmt::fmt)          → target drover_core from src/core/*.cpp
#
# A folder's headers are included as "core/tensor.h". Each target exports an include folder that holds only a link
# to its own sources, so including a folder that is not among its dependencies fails to compile.

function(drover_library name)
  cmake_parse_arguments(ARG "" "" "USES;PRIVATE;EXCLUDE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(excluded IN LISTS ARG_EXCLUDE)
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${excluded})
  endforeach()
  string(REPLACE "/" "_" flat ${name})
  set(include_root ${CMAKE_BINARY_DIR}/include/${flat})
  get_filename_component(parent ${name} DIRECTORY)
  file(MAKE_DIRECTORY ${include_root}/${parent})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${include_root}/${name} SYMBOLIC)

  add_library(drover_${flat} STATIC ${sources})
  target_include_directories(drover_${flat} PUBLIC ${include_root})
  target_link_libraries(drover_${flat} PUBLIC ${ARG_USES} PRIVATE drover_flags ${ARG_PRIVATE})
endfunction()

# drover_install_module(drover_mpi)
# drover_install_module(drover_arrow LIBRARIES … LICENSES …)
#
# Installs what the program and the library load when it is needed into a folder where both look (core/program_module.cpp), with
# either of them. LIBRARIES are those that it needs and that are not the machine's own: they go beside it, with their licences.

function(drover_install_module name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;LICENSES" ${ARGN})
  if(ARG_LIBRARIES)
    set_target_properties(${name} PROPERTIES INSTALL_RPATH "\$ORIGIN")
  else()
    set_target_properties(${name} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
  foreach(component program sdk)
    install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/drover COMPONENT ${component})
    install(FILES ${ARG_LIBRARIES} DESTINATION ${CMAKE_INSTALL_LIBDIR}/drover COMPONENT ${component})
    install(FILES ${ARG_LICENSES} DESTINATION ${CMAKE_INSTALL_DATADIR}/drover/licenses/${name} COMPONENT ${component})
  endforeach()
endfunction()
