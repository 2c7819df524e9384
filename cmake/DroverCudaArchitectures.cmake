# drover_cuda_architectures(RESULT ASKED NVCC): the GPUs to compile for, as CMAKE_CUDA_ARCHITECTURES names them, from
# what was asked for in DROVER_CUDA_ARCHITECTURES:
#   native    the GPUs of this machine; 90a where it has none
#   release   every GPU from compute capability 8.0 on
#   others    a list, as in CMAKE_CUDA_ARCHITECTURES
# PTX for an architecture such as 90a serves no other GPU than its machine code, so it is not kept.

# GPUs that are newer than these run the PTX, which their driver compiles. It is for 9.0, because all older GPUs have
# machine code: it starts kernels early and converts to FP8 in hardware, which PTX for 8.0 could not. PTX for a newer
# GPU would gain nothing, and a Hopper could not test it (CUDA_FORCE_PTX_JIT=1).
set(DROVER_RELEASE_ARCHITECTURES 80-real 86-real 89-real 90a-real 90-virtual)

function(drover_cuda_architectures result asked nvcc)
  if(asked STREQUAL native)
    drover_native_architectures(asked ${nvcc})
  elseif(asked STREQUAL release)
    set(asked ${DROVER_RELEASE_ARCHITECTURES})
  endif()
  foreach(architecture IN LISTS asked)
    if(NOT architecture MATCHES "^([0-9]+)[af]?(-real|-virtual)?$" OR CMAKE_MATCH_1 LESS 80)
      message(FATAL_ERROR "DROVER_CUDA_ARCHITECTURES has ${architecture}. It can be native, release, or a list of "
                          "architectures from 80 on, such as 80, 90a or 80-virtual.")
    endif()
  endforeach()
  list(TRANSFORM asked REPLACE "^([0-9]+[af])$" "\\1-real")
  set(${result} ${asked} PARENT_SCOPE)
endfunction()

# The machine code that this machine's GPUs run. Those that nvcc does not know get PTX.
function(drover_native_architectures result nvcc)
  set(native "")
  find_program(DROVER_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(DROVER_NVIDIA_SMI)
  if(DROVER_NVIDIA_SMI)
    execute_process(COMMAND ${DROVER_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE status)
    execute_process(COMMAND ${nvcc} --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET)
    if(status EQUAL 0)
      string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${capabilities}")
      foreach(capability IN LISTS capabilities)
        string(REPLACE . "" number ${capability})
        if(number LESS 80)
          message(STATUS "A GPU of this machine has compute capability ${capability}, which is too old for Drover")
        elseif(number EQUAL 90)
          list(APPEND native 90a-real)
        elseif("${known}" MATCHES "sm_${number}([^0-9]|$)")
          list(APPEND native ${number}-real)
        elseif(number LESS 90)
          list(APPEND native 80-virtual)  # PTX runs on GPUs that are newer than it is for, never on older ones
        else()
          list(APPEND native 90-virtual)
        endif()
      endforeach()
    endif()
  endif()
  list(REMOVE_DUPLICATES native)
  if(NOT native)
    set(native 90a-real)
  endif()
  set(${result} ${native} PARENT_SCOPE)
endfunction()
