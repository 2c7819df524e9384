# The headers of libraries that most files include, precompiled once per kind of target. What they hold
# is no file's to rely on: every file includes what it uses, and -DDROVER_PCH=OFF must build too.
#
# g++ takes a precompiled header only from a compilation with its own flags, so each kind has a small
# target of its own, compiled as the targets that use it: plain, json and setup here, test and test_json
# for the tests. JSON costs 0.7 s per file that does not use it and saves 1 to 2 s per file that does.

option(DROVER_PCH "Precompile the headers of libraries that most files include (g++)" ON)

# g++ 12 sees overflows in std::string that are not there, and from a precompiled header it does not know
# that this is a system's header, about which it would be silent.
if(DROVER_PCH)
  target_compile_options(drover_flags INTERFACE
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread>")
endif()

set(drover_plain_headers <fmt/format.h> <algorithm> <array> <bit> <chrono> <cmath> <condition_variable> <cstddef>
    <cstdint> <cstring> <deque> <exception> <filesystem> <functional> <initializer_list> <limits> <map> <memory>
    <mutex> <optional> <set> <span> <stdexcept> <string> <string_view> <thread> <type_traits> <utility> <vector>)

# drover_precompile(plain HEADERS … [OPTIONS …] USES …) → target drover_precompiled_plain
function(drover_precompile kind)
  cmake_parse_arguments(ARG "" "" "HEADERS;OPTIONS;USES" ${ARGN})
  if(NOT DROVER_PCH OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  # A target needs a source.
  set(source ${CMAKE_BINARY_DIR}/precompiled/${kind}.cpp)
  if(NOT EXISTS ${source})
    file(WRITE ${source} "// Nothing but the precompiled header.\n")
  endif()
  add_library(drover_precompiled_${kind} OBJECT ${source})
  target_compile_options(drover_precompiled_${kind} PRIVATE ${ARG_OPTIONS})
  target_link_libraries(drover_precompiled_${kind} PRIVATE drover_flags ${ARG_USES})
  target_precompile_headers(drover_precompiled_${kind} PRIVATE ${ARG_HEADERS})
endfunction()

# Gives `target` the precompiled header of that kind, where there are any.
function(drover_use_precompiled target kind)
  if(TARGET drover_precompiled_${kind})
    target_precompile_headers(${target} REUSE_FROM drover_precompiled_${kind})
  endif()
endfunction()

drover_precompile(plain HEADERS ${drover_plain_headers} USES fmt::fmt OpenMP::OpenMP_CXX)
drover_precompile(json HEADERS ${drover_plain_headers} <nlohmann/json.hpp>
                  USES fmt::fmt nlohmann_json::nlohmann_json OpenMP::OpenMP_CXX)
drover_precompile(setup HEADERS ${drover_plain_headers} <nlohmann/json.hpp> OPTIONS ${DROVER_SETUP_OPTIONS}
                  USES fmt::fmt nlohmann_json::nlohmann_json OpenMP::OpenMP_CXX)
