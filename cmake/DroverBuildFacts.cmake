# drover_build_facts(drover) → the target gets own_build_facts() (src/app/build_facts.h)
#
# The source is made in every build, because the commit may have changed, but it is replaced only when what it says
# has. So a build in which nothing changed compiles and links nothing.
#
# Run as a script (cmake -P) this file makes the source. The commit is git's, or that of cmake/commit.txt, into which
# `git archive` writes it; otherwise it is unknown.

if(NOT CMAKE_SCRIPT_MODE_FILE)
  function(drover_build_facts target)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/own_build_facts.cpp)
    set(type ${CMAKE_BUILD_TYPE})
    if(DROVER_SANITIZE OR CMAKE_CXX_FLAGS MATCHES "-fsanitize")
      string(APPEND type " (with sanitizers)")
    endif()
    set(cuda "")
    set(architectures "")
    if(DROVER_WITH_CUDA)
      set(cuda ${CUDAToolkit_VERSION_MAJOR}.${CUDAToolkit_VERSION_MINOR})
      list(JOIN CMAKE_CUDA_ARCHITECTURES "," architectures)
    endif()
    find_package(Git QUIET)
    # Without a git there is nothing to ask, and GIT_EXECUTABLE says that it was not found.
    add_custom_target(${target}_build_facts
                      COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${source} -DGIT=${GIT_EXECUTABLE}
                              -DVERSION=${PROJECT_VERSION} "-DTYPE=${type}"
                              "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" -DCUDA=${cuda}
                              -DARCHITECTURES=${architectures} -P ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
                      BYPRODUCTS ${source} COMMENT "Commit of the sources" VERBATIM)
    add_dependencies(${target} ${target}_build_facts)
    target_sources(${target} PRIVATE ${source})
    set_source_files_properties(${source} PROPERTIES GENERATED ON SKIP_UNITY_BUILD_INCLUSION ON)
  endfunction()
  return()
endif()

set(commit "")
set(modified false)
if(GIT AND EXISTS ${SOURCE}/.git)
  # A checkout may belong to another user, as in a container; building it runs its code anyway. The index is not written,
  # so that a git that works beside the build is not disturbed.
  execute_process(COMMAND ${GIT} -c safe.directory=${SOURCE} --no-optional-locks describe --always --dirty --abbrev=12
                          --exclude=*
                  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(commit MATCHES "^([0-9a-f]+)-dirty$")
    set(commit ${CMAKE_MATCH_1})
    set(modified true)
  endif()
elseif(EXISTS ${SOURCE}/cmake/commit.txt)
  file(READ ${SOURCE}/cmake/commit.txt commit)
  string(SUBSTRING "${commit}" 0 12 commit)
endif()
if(NOT commit MATCHES "^[0-9a-f]+$")
  set(commit "")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "app/build_facts.h"

drover::BuildFacts drover::own_build_facts() {
    return {.version = "@VERSION@",
            .commit = "@commit@",
            .modified = @modified@,
            .type = "@TYPE@",
            .compiler = "@COMPILER@",
            .cuda = "@CUDA@",
            .architectures = "@ARCHITECTURES@"};
}
]])
