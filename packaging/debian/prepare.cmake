# Run by CPack when the installed tree is complete, before the package is made of it: adds what Debian's policy
# asks for, and finds the packages that the files depend on.
# Maintainer is who makes the package: DEBFULLNAME and DEBEMAIL, as for Debian's own tools.

cmake_policy(VERSION 3.25)

set(tree "${CPACK_TEMPORARY_DIRECTORY}")
set(docs "${tree}/usr/share/doc/drover")
set(modules "${tree}/usr/lib/drover")

set(name "$ENV{DEBFULLNAME}")
set(address "$ENV{DEBEMAIL}")
if(NOT name)
  set(name "The Drover authors")
endif()
if(NOT address)
  set(address "drover@packages.invalid")
endif()
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${name} <${address}>")

# Debian's tools find the CUDA libraries and Open MPI without a search path in the file.
file(GLOB linked "${modules}/drover_*.so")
list(FILTER linked EXCLUDE REGEX "/drover_arrow\\.so$")
foreach(file IN LISTS linked)
  file(RPATH_REMOVE FILE "${file}")
endforeach()
file(RPATH_REMOVE FILE "${tree}/usr/bin/drover")
# CPack strips only what was built here.
file(GLOB bundled "${modules}/lib*.so.*")
if(bundled)
  execute_process(COMMAND strip --strip-unneeded --remove-section=.comment --remove-section=.note ${bundled}
                  COMMAND_ERROR_IS_FATAL ANY)
endif()

# The licence is among those of the system.
file(REMOVE "${docs}/LICENSE")
file(COPY "${CPACK_DROVER_SOURCE}/packaging/debian/copyright" DESTINATION "${docs}"
     FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
if(EXISTS "${tree}/usr/share/drover/licenses")
  file(RENAME "${tree}/usr/share/drover/licenses" "${docs}/licenses")
endif()
file(MAKE_DIRECTORY "${tree}/usr/share/lintian/overrides")
configure_file("${CPACK_DROVER_SOURCE}/packaging/debian/lintian-overrides" "${tree}/usr/share/lintian/overrides/drover"
               COPYONLY)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE "${docs}/changelog" "drover (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Made from the sources of version ${CPACK_PACKAGE_VERSION}.

 -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${date}
")
if(EXISTS "${tree}/usr/share/zsh/site-functions")
  file(RENAME "${tree}/usr/share/zsh/site-functions" "${tree}/usr/share/zsh/vendor-completions")
endif()
file(GLOB manuals "${tree}/usr/share/man/man1/*.1")
execute_process(COMMAND gzip -9n "${docs}/changelog" ${manuals} COMMAND_ERROR_IS_FATAL ANY)

# What the program needs to start is a dependency. What single modules need, which are loaded when they are used, is
# recommended. CUDA's libraries belong to no package of Debian.
set(recommending "${modules}/drover_mpi.so" "${modules}/drover_curl.so")
file(GLOB arrow "${modules}/drover_arrow.so")
list(APPEND recommending ${arrow})
set(control "${tree}/../dependencies")
file(REMOVE_RECURSE "${control}")
file(WRITE "${control}/debian/control" "Source: drover\n\nPackage: drover\nArchitecture: any\n")
find_program(shlibdeps dpkg-shlibdeps REQUIRED)
execute_process(
  COMMAND "${shlibdeps}" -O --ignore-missing-info "-l${modules}" "${tree}/usr/bin/drover" "${modules}/drover_loopback.so"
          -dRecommends ${recommending}
  WORKING_DIRECTORY "${control}" OUTPUT_VARIABLE found ERROR_VARIABLE messages RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR NOT found MATCHES "shlibs:Depends=([^\n]+)")
  message(FATAL_ERROR "dpkg-shlibdeps failed: ${messages}")
endif()
set(CPACK_DEBIAN_PACKAGE_DEPENDS "${CMAKE_MATCH_1}")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin, ca-certificates")
if(found MATCHES "shlibs:Recommends=([^\n]+)")
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "${CMAKE_MATCH_1}, ${CPACK_DEBIAN_PACKAGE_RECOMMENDS}")
endif()
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "openssh-client")
if(CPACK_DROVER_CUDA_VERSION MATCHES "^([0-9]+)\\.([0-9]+)")
  set(cuda "${CMAKE_MATCH_1}-${CMAKE_MATCH_2}")
  string(APPEND CPACK_DEBIAN_PACKAGE_SUGGESTS
         ", cuda-cudart-${cuda}, libcublas-${cuda}, cuda-nvrtc-${cuda}, libcudnn9-cuda-${CMAKE_MATCH_1}, libnccl2")
endif()
