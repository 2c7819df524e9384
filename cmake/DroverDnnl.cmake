# oneDNN (2.6 or later), as drover::dnnl. Found by header and library: the distributions' package files also ask for
# the OpenCL that their GPU part was built with, which we never use.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(DNNL_LIBRARY dnnl)
if(NOT DNNL_INCLUDE_DIR OR NOT DNNL_LIBRARY)
  message(FATAL_ERROR "oneDNN was not found. Run scripts/setup.sh, or install libdnnl-dev.")
endif()
add_library(drover_dnnl INTERFACE)
target_include_directories(drover_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(drover_dnnl INTERFACE ${DNNL_LIBRARY})
add_library(drover::dnnl ALIAS drover_dnnl)
