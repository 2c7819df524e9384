# Arrow C++ with parquet, as drover::arrow, for the optional module drover_arrow.so: from the system, else from the
# pyarrow wheel that scripts/setup.sh puts into the user's cache (or from the folder in DROVER_ARROW_ROOT, one that holds
# include/ and libarrow.so*). Without it there is no such target and everything else is built.
# DROVER_ARROW_LIBRARIES are the wheel's libraries, which are installed beside the module, and
# DROVER_ARROW_LICENSES their licences. Both are empty where Arrow is the system's.

set(DROVER_ARROW_ROOT "" CACHE PATH "Folder with include/ and libarrow.so* (a pyarrow package); empty: search")

find_package(Arrow QUIET CONFIG)
find_package(Parquet QUIET CONFIG)
if(TARGET Arrow::arrow_shared AND TARGET Parquet::parquet_shared)
  add_library(drover_system_arrow INTERFACE)
  target_link_libraries(drover_system_arrow INTERFACE Arrow::arrow_shared Parquet::parquet_shared)
  add_library(drover::arrow ALIAS drover_system_arrow)
else()
  set(cache $ENV{XDG_CACHE_HOME})
  if(NOT cache)
    set(cache $ENV{HOME}/.cache)
  endif()
  file(GLOB wheels ${cache}/drover/pyarrow-*/pyarrow)
  list(SORT wheels COMPARE NATURAL ORDER DESCENDING)
  foreach(root IN LISTS DROVER_ARROW_ROOT wheels)
    file(GLOB arrow_library ${root}/libarrow.so.*)
    file(GLOB parquet_library ${root}/libparquet.so.*)
    if(arrow_library AND parquet_library AND EXISTS ${root}/include/arrow/api.h AND NOT TARGET drover_system_arrow)
      add_library(drover_system_arrow INTERFACE)
      target_include_directories(drover_system_arrow SYSTEM INTERFACE ${root}/include)
      target_link_libraries(drover_system_arrow INTERFACE ${parquet_library} ${arrow_library})
      add_library(drover::arrow ALIAS drover_system_arrow)
      set(DROVER_ARROW_LIBRARIES ${arrow_library} ${parquet_library})
      file(GLOB DROVER_ARROW_LICENSES ${root}/../LICENSE* ${root}/../NOTICE*)
    endif()
  endforeach()
endif()
if(NOT TARGET drover::arrow)
  message(STATUS "Arrow C++ was not found: parquet and Arrow files cannot be read (see scripts/setup.sh)")
endif()
