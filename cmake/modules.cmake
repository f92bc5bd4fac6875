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

# A product of complex numbers is rounded as its parts are: the same on every processor, whether it has fused multiply and add (arm64) or not.
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/core/atomic.cpp" PROPERTIES COMPILE_OPTIONS -ffp-contract=off)

# weft_sources(<out> <folder>): what belongs in a library or program: neither tests nor entries of shared libraries.
function(weft_sources out folder)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cpp")
  list(FILTER files EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER files EXCLUDE REGEX "/entry_[^/]*\\.cpp$")
  set(${out} "${files}" PARENT_SCOPE)
endfunction()

# For editing: libraries without most providers, whose engines are most of what a change of proto/engine compiles.
set(WEFT_PROVIDERS "" CACHE STRING "Which of src/api/libfabric/providers/ the drop-in has, for example shm;tcp_rxm (default: all)")

# weft_choose_providers(<list of sources>): leaves out those that WEFT_PROVIDERS does not name, and tells entry/registry.cpp.
function(weft_choose_providers out)
  set(kept "${${out}}")
  set(types "")
  set(chosen "")
  foreach(name IN LISTS WEFT_PROVIDERS)
    set(file "${PROJECT_SOURCE_DIR}/src/api/libfabric/providers/${name}.cpp")
    if(NOT EXISTS "${file}")
      message(FATAL_ERROR "weft: WEFT_PROVIDERS: '${name}' is none of src/api/libfabric/providers/")
    endif()
    string(REPLACE "_" ";" words "${name}")
    set(type "")
    foreach(word IN LISTS words)
      string(SUBSTRING "${word}" 0 1 first)
      string(SUBSTRING "${word}" 1 -1 rest)
      string(TOUPPER "${first}" first)
      string(APPEND type "${first}${rest}")
    endforeach()
    list(APPEND chosen "${file}")
    list(APPEND types "&provider_of<providers::${type}>")
  endforeach()
  list(FILTER kept EXCLUDE REGEX "/api/libfabric/providers/")
  list(APPEND kept ${chosen})
  list(JOIN types "," types)
  set_property(SOURCE "${PROJECT_SOURCE_DIR}/src/api/libfabric/entry/registry.cpp" PROPERTY COMPILE_DEFINITIONS "WEFT_CHOSEN_PROVIDERS=${types}")
  set(${out} "${kept}" PARENT_SCOPE)
endfunction()

function(weft_add_modules)
  set(above "")
  foreach(module IN LISTS WEFT_MODULES)
    weft_module_target(target "${module}")
    weft_sources(sources "src/${module}")
    if(WEFT_PROVIDERS AND module STREQUAL "api/libfabric")
      weft_choose_providers(sources)
    endif()
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
