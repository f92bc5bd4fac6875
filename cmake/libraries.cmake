# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The shared libraries: the drop-in libfabric.so.1, the plugin for a stock libfabric, and the drop-in libibverbs.so.1. They hold what they use of
# all modules, export only what their map names, and bring no library of ours or of the compiler into the program.

# The stock libraries' versions whose interfaces are offered; they stand in the files' names only.
set(WEFT_COMPAT_VERSION 1.17.0)
set(WEFT_VERBS_VERSION 1.14.44)

# weft_self_contained(<target> <map> [<module target>]): with a module, it and those above it, which come with it; otherwise all.
function(weft_self_contained target map)
  if(ARGN)
    target_link_libraries(${target} PRIVATE ${ARGN})
  else()
    target_link_libraries(${target} PRIVATE ${WEFT_MODULE_TARGETS})
  endif()
  target_link_options(${target} PRIVATE -Wl,-z,defs -Wl,--no-undefined -Wl,-Bsymbolic -Wl,--gc-sections -Wl,-z,now
                                        "-Wl,--version-script=${map}")
  if(NOT WEFT_SANITIZE)
    # A sanitizer must see one C++ runtime in the process; elsewhere ours is our own.
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  set_target_properties(${target} PROPERTIES LINK_DEPENDS "${map}" INTERPROCEDURAL_OPTIMIZATION OFF)
  if(WEFT_LTO)
    target_link_options(${target} PRIVATE -flto=auto)
  endif()
endfunction()

set(api "${PROJECT_SOURCE_DIR}/src/api/libfabric")
# Listed by globs so that the first appearance of an entry configures again.
file(GLOB entry_dropin CONFIGURE_DEPENDS "${api}/entry/entry_dropin.cpp")
file(GLOB map_dropin CONFIGURE_DEPENDS "${api}/entry/libfabric.map")
file(GLOB entry_plugin CONFIGURE_DEPENDS "${api}/entry/entry_plugin.cpp")
file(GLOB map_plugin CONFIGURE_DEPENDS "${api}/entry/plugin.map")

if(entry_dropin AND map_dropin)
  # Entries are compiled without LTO: their .symver lines name symbols that a partition could move away.
  add_library(weft_compat SHARED ${entry_dropin})
  weft_self_contained(weft_compat "${map_dropin}")
  set_target_properties(weft_compat PROPERTIES OUTPUT_NAME fabric VERSION ${WEFT_COMPAT_VERSION} SOVERSION 1
                                               LIBRARY_OUTPUT_DIRECTORY "${WEFT_COMPAT_DIR}")
else()
  message(STATUS "weft: no entry_dropin.cpp with libfabric.map yet: the drop-in is not built")
endif()

if(entry_plugin)
  if(NOT map_plugin)
    set(map_plugin "${PROJECT_SOURCE_DIR}/cmake/plugin.map")
  endif()
  # A plugin is one provider, so there is one for each that is of use to others, named by its type in src/providers/: libweft-fi.so is shm.
  function(weft_add_plugin target name type)
    add_library(${target} MODULE ${entry_plugin})
    target_compile_definitions(${target} PRIVATE "WEFT_PLUGIN_PROVIDER=${type}")
    weft_self_contained(${target} "${map_plugin}")
    set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${name} SUFFIX .so
                                               LIBRARY_OUTPUT_DIRECTORY "${WEFT_PLUGIN_DIR}")
  endfunction()
  weft_add_plugin(weft_plugin libweft-fi Shm)
  weft_add_plugin(weft_plugin_tcp libweft-tcp-fi Tcp)
  weft_add_plugin(weft_plugin_udp libweft-udp-fi Udp)
else()
  message(STATUS "weft: no entry_plugin.cpp yet: the plugin is not built")
endif()

set(verbs "${PROJECT_SOURCE_DIR}/src/api/verbs")
file(GLOB entry_verbs CONFIGURE_DEPENDS "${verbs}/entry/entry_*.cpp")
add_library(weft_verbs SHARED ${entry_verbs})
weft_self_contained(weft_verbs "${verbs}/entry/libibverbs.map" weft_api_verbs)
set_target_properties(weft_verbs PROPERTIES OUTPUT_NAME ibverbs VERSION ${WEFT_VERBS_VERSION} SOVERSION 1
                                            LIBRARY_OUTPUT_DIRECTORY "${WEFT_COMPAT_DIR}")

# Connections by name, over the public calls of libibverbs.so.1.
set(WEFT_RDMACM_VERSION 1.3.44)
set(rdmacm "${PROJECT_SOURCE_DIR}/src/api/rdmacm")
file(GLOB entry_rdmacm CONFIGURE_DEPENDS "${rdmacm}/entry/entry_*.cpp")
add_library(weft_rdmacm SHARED ${entry_rdmacm})
weft_self_contained(weft_rdmacm "${rdmacm}/entry/librdmacm.map" weft_api_rdmacm)
target_link_libraries(weft_rdmacm PRIVATE weft_verbs)
set_target_properties(weft_rdmacm PROPERTIES OUTPUT_NAME rdmacm VERSION ${WEFT_RDMACM_VERSION} SOVERSION 1 SKIP_BUILD_RPATH TRUE
                                             LIBRARY_OUTPUT_DIRECTORY "${WEFT_COMPAT_DIR}")

# What `weft trace` loads before a program's libraries: written against the public interfaces, without a module.
if(WEFT_TOOLS)
  add_library(weft_trace MODULE "${PROJECT_SOURCE_DIR}/tools/trace/recorder.cpp" "${PROJECT_SOURCE_DIR}/tools/trace/fabric.cpp"
                                "${PROJECT_SOURCE_DIR}/tools/trace/verbs.cpp")
  set(trace_map "${PROJECT_SOURCE_DIR}/tools/trace/trace.map")
  target_include_directories(weft_trace PRIVATE "${PROJECT_SOURCE_DIR}/tools")
  target_link_libraries(weft_trace PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(weft_trace PRIVATE -Wl,-z,defs -Wl,--gc-sections -Wl,-z,now "-Wl,--version-script=${trace_map}")
  if(NOT WEFT_SANITIZE)
    target_link_options(weft_trace PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  set_target_properties(weft_trace PROPERTIES PREFIX lib OUTPUT_NAME weft-trace LINK_DEPENDS "${trace_map}" INTERPROCEDURAL_OPTIMIZATION OFF
                                              LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/weft/trace")
endif()
