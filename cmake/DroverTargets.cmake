# Compiles the files of `target` several at a time ("unity build"): reading the headers and instantiating the same
# templates costs more than the files themselves. Names in anonymous namespaces must differ within a folder.
function(drover_compile_in_batches target)
  if(DROVER_BATCH_SIZE GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${DROVER_BATCH_SIZE})
    # In a batch g++ takes every file but the batch itself for a header.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# drover_library(core USES fmt::fmt)                 → target drover_core from src/core/*.cpp
# drover_library(train/loop USES drover_train_engine) → target drover_train_loop from src/train/loop/*.cpp
#
# A folder's headers are included as "core/tensor.h". Each target exports an include folder that holds
# only a link to its own sources, so including a folder that is not among its dependencies fails to
# compile. JSON: half of its files use core/json.h, so it is precompiled too. SETUP: as JSON, and it is
# compiled with DROVER_SETUP_OPTIONS, except for the files named by BULK, which compute or copy in bulk.

function(drover_library name)
  cmake_parse_arguments(ARG "JSON;SETUP" "" "USES;PRIVATE;EXCLUDE;BULK" ${ARGN})
  set(folder ${PROJECT_SOURCE_DIR}/src/${name})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  foreach(excluded IN LISTS ARG_EXCLUDE)
    list(REMOVE_ITEM sources ${folder}/${excluded})
  endforeach()
  string(REPLACE "/" "_" flat ${name})
  set(include_root ${CMAKE_BINARY_DIR}/include/${flat})
  get_filename_component(parent ${name} DIRECTORY)
  file(MAKE_DIRECTORY ${include_root}/${parent})
  file(CREATE_LINK ${folder} ${include_root}/${name} SYMBOLIC)

  if(NOT sources)  # headers alone
    add_library(drover_${flat} INTERFACE)
    target_include_directories(drover_${flat} INTERFACE ${include_root})
    target_link_libraries(drover_${flat} INTERFACE ${ARG_USES})
    return()
  endif()
  add_library(drover_${flat} STATIC ${sources})
  drover_compile_in_batches(drover_${flat})
  target_include_directories(drover_${flat} PUBLIC ${include_root})
  target_link_libraries(drover_${flat} PUBLIC ${ARG_USES} PRIVATE drover_flags ${ARG_PRIVATE})
  if(ARG_SETUP)
    target_compile_options(drover_${flat} PRIVATE ${DROVER_SETUP_OPTIONS})
    drover_use_precompiled(drover_${flat} setup)
    # A file's own options come last.
    list(TRANSFORM ARG_BULK PREPEND ${folder}/)
    set_source_files_properties(${ARG_BULK} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>
                                SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  elseif(ARG_JSON)
    drover_use_precompiled(drover_${flat} json)
  else()
    drover_use_precompiled(drover_${flat} plain)
  endif()
endfunction()

# drover_rooms(train state checkpoint) → target drover_train, which stands for drover_train_state and
# drover_train_checkpoint together.

function(drover_rooms name)
  add_library(drover_${name} INTERFACE)
  foreach(room IN LISTS ARGN)
    target_link_libraries(drover_${name} INTERFACE drover_${name}_${room})
  endforeach()
endfunction()

# drover_module(drover_mpi)
# drover_module(drover_arrow LIBRARIES … LICENSES …)
#
# A library that the program, or the shared library, loads when it is needed (core/program_module.h). It
# is built beside the program, test programs have a link to it beside them, and it is installed, with
# any of its users, where all look. LIBRARIES are those that it needs and that are not the machine's
# own: they go beside it, with their licences.

function(drover_module name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;LICENSES" ${ARGN})
  set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  if(DROVER_TESTS)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    file(CREATE_LINK ../${name}.so ${CMAKE_BINARY_DIR}/tests/${name}.so SYMBOLIC)
  endif()
  if(ARG_LIBRARIES)
    set_target_properties(${name} PROPERTIES INSTALL_RPATH "\$ORIGIN")
  else()
    set_target_properties(${name} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
  foreach(component program sdk python)
    install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/drover COMPONENT ${component})
    install(FILES ${ARG_LIBRARIES} DESTINATION ${CMAKE_INSTALL_LIBDIR}/drover COMPONENT ${component})
    install(FILES ${ARG_LICENSES} DESTINATION ${CMAKE_INSTALL_DATADIR}/drover/licenses/${name} COMPONENT ${component})
  endforeach()
endfunction()
