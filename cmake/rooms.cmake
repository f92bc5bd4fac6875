# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# One library weft_<room> for each folder in scripts/check/rooms.txt, which is also the list of the layer rule.
# A room of headers only becomes an interface library, so nobody needs to know which kind a room is.

set(WEFT_ROOMS_FILE "${PROJECT_SOURCE_DIR}/scripts/check/rooms.txt")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${WEFT_ROOMS_FILE}")
file(STRINGS "${WEFT_ROOMS_FILE}" WEFT_ROOMS REGEX "^[a-z]")

# weft_room_target(<out> <room>): "api/libfabric" is built by the target weft_api_libfabric.
function(weft_room_target out room)
  string(REPLACE "/" "_" name "${room}")
  set(${out} "weft_${name}" PARENT_SCOPE)
endfunction()

# weft_sources(<out> <folder>): what belongs in a library or program: neither tests nor entries of shared libraries.
function(weft_sources out folder)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cpp")
  list(FILTER files EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER files EXCLUDE REGEX "/entry_[^/]*\\.cpp$")
  set(${out} "${files}" PARENT_SCOPE)
endfunction()

function(weft_add_rooms)
  set(above "")
  foreach(room IN LISTS WEFT_ROOMS)
    weft_room_target(target "${room}")
    weft_sources(sources "src/${room}")
    if(sources)
      add_library(${target} STATIC ${sources})
      set(scope PUBLIC)
      list(APPEND solid ${target})
    else()
      add_library(${target} INTERFACE)
      set(scope INTERFACE)
    endif()
    target_include_directories(${target} ${scope} "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include" ${LIBFABRIC_INCLUDE_DIRS})
    # Nearest first: a static library must stand before those that it takes symbols from.
    target_link_libraries(${target} ${scope} ${above} Threads::Threads)
    list(PREPEND above ${target})
  endforeach()
  # The front end asks for the list of providers, which stands below it: the one circle, resolved by the linker.
  if("weft_api_libfabric" IN_LIST solid AND "weft_providers" IN_LIST solid)
    target_link_libraries(weft_api_libfabric PUBLIC weft_providers)
  endif()
  set(WEFT_ROOM_TARGETS "${above}" PARENT_SCOPE)
endfunction()
