# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# One library weft_<module> for each folder in scripts/check/modules.txt, which is also the list of the layer rule.
# A module of headers only becomes an interface library, so nobody needs to know which kind a module is.

set(WEFT_MODULES_FILE "${PROJECT_SOURCE_DIR}/scripts/check/modules.txt")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${WEFT_MODULES_FILE}")
file(STRINGS "${WEFT_MODULES_FILE}" WEFT_MODULES REGEX "^[a-z]")

# weft_module_target(<out> <module>): "api/libfabric" is built by the target weft_api_libfabric.
function(weft_module_target out module)
  string(REPLACE "/" "_" name "${module}")
  set(${out} "weft_${name}" PARENT_SCOPE)
endfunction()

# weft_sources(<out> <folder>): what belongs in a library or program: neither tests nor entries of shared libraries.
function(weft_sources out folder)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cpp")
  list(FILTER files EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER files EXCLUDE REGEX "/entry_[^/]*\\.cpp$")
  set(${out} "${files}" PARENT_SCOPE)
endfunction()

function(weft_add_modules)
  set(above "")
  foreach(module IN LISTS WEFT_MODULES)
    weft_module_target(target "${module}")
    weft_sources(sources "src/${module}")
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
  set(WEFT_MODULE_TARGETS "${above}" PARENT_SCOPE)
endfunction()
