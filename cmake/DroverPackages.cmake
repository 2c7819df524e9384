# The Debian package (make deb): the component "program", and what packaging/debian/prepare.cmake adds to it.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME drover)
set(CPACK_PACKAGE_VENDOR "The Drover authors")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};drover;program;/")
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                                WORLD_READ WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_THREADS 0)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "trains language models from run_clm.py command lines
Drover trains Llama, Mistral, Mixtral and Qwen models from the command lines,
configuration files and checkpoints that users of Hugging Face's libraries
have. It is one native program, without Python, for CPUs and NVIDIA GPUs, for
one process or many.

Several processes need Open MPI and downloads need libcurl, which are
recommended. A GPU needs the CUDA libraries, which are suggested under the
names that they have in NVIDIA's repository.")
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/packaging/debian/prepare.cmake)

# For the script.
set(CPACK_DROVER_SOURCE ${CMAKE_SOURCE_DIR})
set(CPACK_DROVER_CUDA_VERSION "")
if(DROVER_WITH_CUDA)
  set(CPACK_DROVER_CUDA_VERSION ${CUDAToolkit_VERSION})
endif()

include(CPack)
