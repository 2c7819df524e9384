# cmake -DMODULES=…/cmake -DFOLDER=… -P cuda_architectures_test.cmake
# Which GPUs a build is for, with an nvidia-smi and an nvcc that say what a case needs.

list(APPEND CMAKE_MODULE_PATH ${MODULES})
include(DroverCudaArchitectures)

# One case alone, in a process of its own.
if(DEFINED ASKED)
  drover_cuda_architectures(made "${ASKED}" ${FOLDER}/nvcc)
  message(STATUS "${made}")
  return()
endif()

file(REMOVE_RECURSE ${FOLDER})
file(WRITE ${FOLDER}/nvcc "#!/bin/sh\nprintf 'sm_75\\nsm_80\\nsm_86\\nsm_89\\nsm_90\\nsm_100\\nsm_120\\n'\n")

# expect(ASKED OUTPUT GPUS STATUS): made of what was asked for on a machine whose nvidia-smi prints GPUS.
function(expect asked expected gpus status)
  file(WRITE ${FOLDER}/nvidia-smi "#!/bin/sh\nprintf '${gpus}'\nexit ${status}\n")
  file(CHMOD ${FOLDER}/nvcc ${FOLDER}/nvidia-smi PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  execute_process(COMMAND ${CMAKE_COMMAND} -DMODULES=${MODULES} -DFOLDER=${FOLDER} "-DASKED=${asked}"
                          -DDROVER_NVIDIA_SMI=${FOLDER}/nvidia-smi -P ${CMAKE_CURRENT_LIST_FILE}
                  OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  string(FIND "${output}" "${expected}" found)
  if(found LESS 0)
    message(SEND_ERROR "'${asked}' on a machine with '${gpus}' gave '${output}' (${result}) instead of '${expected}'")
  endif()
endfunction()

expect(native "-- 90a-real " "9.0\\n" 0)
expect(native "-- 80-real " "8.0\\n8.0\\n8.0\\n8.0\\n" 0)
expect(native "-- 86-real;89-real " "8.6\\n8.9\\n" 0)
expect(native "-- 120-real " "12.0\\n" 0)
# One that nvcc does not know, one that is too old, none, and a driver that does not answer.
expect(native "-- 90-virtual " "13.0\\n" 0)
expect(native "-- 80-virtual " "8.7\\n" 0)
expect(native "-- 90a-real " "7.5\\n" 0)
expect(native "too old for Drover -- 80-real " "7.0\\n8.0\\n" 0)
expect(native "-- 90a-real " "No devices were found\\n" 6)
expect(native "-- 90a-real " "Failed to initialize NVML: Driver/library version mismatch 580.95\\n" 18)

expect(release "-- 80-real;86-real;89-real;90a-real;90-virtual " "8.0\\n" 0)
expect("80;90a" "-- 80;90a-real " "" 0)
expect(80-virtual "-- 80-virtual " "" 0)
expect(75 "DROVER_CUDA_ARCHITECTURES has 75." "" 0)
expect("90a;all" "DROVER_CUDA_ARCHITECTURES has all." "" 0)
