# CUDA with cuBLASLt, and cuDNN with its C++ frontend, for the optional module drover_cuda.so. Sets DROVER_WITH_CUDA. NCCL, as
# drover::nccl where it is found, for the optional module drover_nccl.so.
# DROVER_CUDA=AUTO builds it where nvcc, cuBLASLt and cuDNN are found.
# The frontend is headers only: from the system, or from the wheel that scripts/setup.sh puts into the user's cache (or from
# the folder in DROVER_CUDNN_FRONTEND_ROOT, one that holds cudnn_frontend.h).

set(DROVER_CUDNN_FRONTEND_ROOT "" CACHE PATH "Folder with cudnn_frontend.h; empty: search")
include(DroverCudaArchitectures)
set(DROVER_CUDA_ARCHITECTURES native CACHE STRING
    "GPUs to compile for: native (this machine's), release (all), or a list as in CMAKE_CUDA_ARCHITECTURES")
set(DROVER_WITH_CUDA OFF)

# Sanitizers and fuzzing are about host code.
if(DROVER_CUDA STREQUAL "OFF" OR (DROVER_CUDA STREQUAL "AUTO" AND (DROVER_SANITIZE OR CMAKE_CXX_FLAGS MATCHES "-fsanitize")))
  return()
endif()

set(missing "")
find_program(nvcc nvcc PATHS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
if(nvcc)
  set(CMAKE_CUDA_COMPILER ${nvcc})
  drover_cuda_architectures(CMAKE_CUDA_ARCHITECTURES "${DROVER_CUDA_ARCHITECTURES}" ${nvcc})
  find_package(CUDAToolkit QUIET)
else()
  list(APPEND missing nvcc)
endif()
if(nvcc AND NOT TARGET CUDA::cublasLt)
  list(APPEND missing cuBLASLt)
endif()

find_path(DROVER_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(DROVER_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib
             /usr/local/cuda/lib)
if(NOT DROVER_CUDNN_INCLUDE OR NOT DROVER_CUDNN_LIBRARY)
  list(APPEND missing cuDNN)
endif()

set(cache $ENV{XDG_CACHE_HOME})
if(NOT cache)
  set(cache $ENV{HOME}/.cache)
endif()
file(GLOB wheels ${cache}/drover/cudnn-frontend-*/include)
list(SORT wheels COMPARE NATURAL ORDER DESCENDING)
find_path(DROVER_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${DROVER_CUDNN_FRONTEND_ROOT} ${wheels})
if(NOT DROVER_CUDNN_FRONTEND_INCLUDE)
  list(APPEND missing "cuDNN's C++ frontend (scripts/fetch_cudnn_frontend.sh)")
endif()

if(missing)
  list(JOIN missing ", " missing)
  if(DROVER_CUDA STREQUAL "ON")
    message(FATAL_ERROR "DROVER_CUDA=ON, but these were not found: ${missing}")
  endif()
  message(STATUS "Building without CUDA; not found: ${missing}")
  return()
endif()

find_program(DROVER_CUDA_CCACHE ccache)
if(DROVER_CUDA_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${DROVER_CUDA_CCACHE})
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc supports C++20.
foreach(kind STANDARD EXTENSION)
  if(NOT CMAKE_CUDA20_${kind}_COMPILE_OPTION)
    set(CMAKE_CUDA20_${kind}_COMPILE_OPTION -std=c++20)
  endif()
endforeach()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)

add_library(drover_cudnn INTERFACE)
target_include_directories(drover_cudnn SYSTEM INTERFACE ${DROVER_CUDNN_FRONTEND_INCLUDE} ${DROVER_CUDNN_INCLUDE})
# One of the frontend's engines, for other GPUs, compiles at run time.
target_link_libraries(drover_cudnn INTERFACE ${DROVER_CUDNN_LIBRARY} CUDA::nvrtc)
add_library(drover::cudnn ALIAS drover_cudnn)
set(DROVER_WITH_CUDA ON)

find_path(DROVER_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(DROVER_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib /usr/local/cuda/lib)
if(DROVER_NCCL_INCLUDE AND DROVER_NCCL_LIBRARY)
  add_library(drover_system_nccl INTERFACE)
  target_include_directories(drover_system_nccl SYSTEM INTERFACE ${DROVER_NCCL_INCLUDE})
  target_link_libraries(drover_system_nccl INTERFACE ${DROVER_NCCL_LIBRARY})
  add_library(drover::nccl ALIAS drover_system_nccl)
else()
  message(STATUS "NCCL was not found: several GPUs cannot be used")
endif()
message(STATUS "Building with CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
