# What can be chosen at configure time, and the flags that all of our own code is compiled with.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Programs are compiled as libraries are, so that they can share precompiled headers.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE ${CMAKE_CXX_COMPILE_OPTIONS_PIC})
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

option(DROVER_TESTS "Build the tests" ON)
option(DROVER_BENCH "Build the speed programs of bench/" OFF)
option(DROVER_FUZZ "Build the libFuzzer targets (clang only)" OFF)
option(DROVER_SANITIZE "Build with the address and undefined-behaviour sanitizers" OFF)
set(DROVER_CUDA AUTO CACHE STRING "CUDA backend: AUTO (on where nvcc is found), ON or OFF")
set(DROVER_BATCH_SIZE 8 CACHE STRING "How many files of a folder are compiled together; 1: each alone")
set_property(CACHE DROVER_CUDA PROPERTY STRINGS AUTO ON OFF)

# ccache keeps what was compiled with a precompiled header (DroverPrecompiled.cmake) only when it is told that
# no file looks at __TIME__ or at macros that the header left undefined.
find_program(DROVER_CCACHE ccache)
if(DROVER_CCACHE AND (NOT CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_CXX_COMPILER_LAUNCHER MATCHES "(^|/)ccache$"))
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${DROVER_CCACHE})
endif()

# For code that runs at the start of a run or between its steps, and for tests: what it costs to compile counts
# for more than how fast it is.
set(DROVER_SETUP_OPTIONS $<$<CONFIG:Release>:-O1>)

add_library(drover_flags INTERFACE)
# Designated initialisers leave defaults out on purpose.
target_compile_options(drover_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Werror;-Wno-missing-field-initializers>")
# In a batch (drover_compile_in_batches) a file's own name may be another file's variable.
set(in_batches $<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>)
target_compile_options(drover_flags INTERFACE
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:${in_batches}>>:-Wshadow>
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,${in_batches}>:-Wshadow=local>)
# A check that fails names its file, by its place in the sources and not on the machine that it was built on.
set(drover_source_names -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
target_compile_options(drover_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${drover_source_names}>
                       $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${drover_source_names}>)
if(DROVER_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  # With sanitizers g++ 12 warns of the standard library's own std::function and std::regex.
  target_compile_options(drover_flags INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>")
endif()

# Programs find bundled libraries beside themselves (scripts/bundle.sh); the old kind of rpath serves the libraries' own
# dependencies too.
set(CMAKE_BUILD_RPATH "\$ORIGIN/../lib")
add_link_options(-Wl,--disable-new-dtags)
