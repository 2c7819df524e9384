# Libraries for text and data that come without (dependable) CMake files: drover::pcre2, drover::sentencepiece,
# drover::xxhash, drover::zstd; and drover::curl. ICU and zlib have modules of CMake's own.

# drover_system_library(pcre2 HEADER pcre2.h LIBRARY pcre2-8 PACKAGE libpcre2-dev) → drover::pcre2
function(drover_system_library name)
  cmake_parse_arguments(ARG "" "HEADER;LIBRARY;PACKAGE" "" ${ARGN})
  find_path(DROVER_${name}_INCLUDE_DIR ${ARG_HEADER})
  find_library(DROVER_${name}_LIBRARY ${ARG_LIBRARY})
  if(NOT DROVER_${name}_INCLUDE_DIR OR NOT DROVER_${name}_LIBRARY)
    message(FATAL_ERROR "${ARG_HEADER} or its library was not found. Run scripts/setup.sh, or install ${ARG_PACKAGE}.")
  endif()
  add_library(drover_system_${name} INTERFACE)
  target_include_directories(drover_system_${name} SYSTEM INTERFACE ${DROVER_${name}_INCLUDE_DIR})
  target_link_libraries(drover_system_${name} INTERFACE ${DROVER_${name}_LIBRARY})
  add_library(drover::${name} ALIAS drover_system_${name})
endfunction()

drover_system_library(pcre2 HEADER pcre2.h LIBRARY pcre2-8 PACKAGE libpcre2-dev)
drover_system_library(sentencepiece HEADER sentencepiece_processor.h LIBRARY sentencepiece PACKAGE libsentencepiece-dev)
drover_system_library(xxhash HEADER xxhash.h LIBRARY xxhash PACKAGE libxxhash-dev)
drover_system_library(zstd HEADER zstd.h LIBRARY zstd PACKAGE libzstd-dev)
drover_system_library(curl HEADER curl/curl.h LIBRARY curl PACKAGE libcurl4-openssl-dev)
find_package(ICU REQUIRED COMPONENTS uc i18n data)
find_package(ZLIB REQUIRED)
