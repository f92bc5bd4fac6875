# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The command `weft`, the benchmarks and the examples. They are written against the public interface and linked with the stock
# library; at run time they use whichever libfabric.so.1 comes first.

weft_sources(tool_sources "tools/weft")
if(tool_sources AND WEFT_TOOLS)
  find_package(fmt REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(nlohmann_json REQUIRED)
  # fmt compiled in: its shared library has another name on each release of a distribution.
  # All but main.cpp, for the command and for its tests.
  set(parts ${tool_sources})
  list(FILTER parts EXCLUDE REGEX "/main\\.cpp$")
  add_library(weft_tool_parts STATIC ${parts})
  target_include_directories(weft_tool_parts PUBLIC "${PROJECT_SOURCE_DIR}/tools/weft" "${PROJECT_SOURCE_DIR}/tools" "${PROJECT_SOURCE_DIR}/include")
  target_compile_definitions(weft_tool_parts PUBLIC "WEFT_VERSION=\"${PROJECT_VERSION}\"" "WEFT_LIBDIR=\"${CMAKE_INSTALL_LIBDIR}\"")
  target_compile_definitions(weft_tool_parts PRIVATE "WEFT_PLUGIN_LINK=\"${WEFT_PLUGIN_LINK_WORDS}\"")
  target_link_libraries(weft_tool_parts PUBLIC PkgConfig::LIBFABRIC fmt::fmt-header-only CLI11::CLI11 nlohmann_json::nlohmann_json Threads::Threads)
  # What measures keeps -O3; options, tables and texts are compiled with less. No precompiled header: with CLI11 in it, g++ takes twice as long.
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    list(FILTER parts INCLUDE REGEX "/(cli|perf_(options|compare|hosts|plan)|report|timeline|trace|(info|check|nic|kofi|mux|top)[a-z_]*)\\.cpp$")
    set_source_files_properties(${parts} PROPERTIES COMPILE_OPTIONS -O1)
  endif()
  add_executable(weft "${PROJECT_SOURCE_DIR}/tools/weft/main.cpp")
  # Only main.cpp sees it, so that a commit costs one file.
  set(revision "${PROJECT_BINARY_DIR}/revision/weft_revision.hpp")
  add_custom_target(weft_revision COMMAND "${CMAKE_COMMAND}" -DSOURCE=${PROJECT_SOURCE_DIR} -DOUT=${revision} -P "${PROJECT_SOURCE_DIR}/cmake/revision.cmake"
                    BYPRODUCTS "${revision}" VERBATIM)
  add_dependencies(weft weft_revision)
  target_include_directories(weft PRIVATE "${PROJECT_BINARY_DIR}/revision")
  target_compile_definitions(weft PRIVATE "WEFT_BUILT=\"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}\"")
  target_link_libraries(weft PRIVATE weft_tool_parts)
  set_target_properties(weft PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
endif()

# weft_programs(<folder>): each .cpp directly in the folder is a program of its own. One of verbs is linked with the system's library alone, where there is one.
find_library(WEFT_VERBS_LIBRARY ibverbs)
function(weft_programs folder)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cpp")
  string(REPLACE "/" "_" prefix "${folder}")
  foreach(file IN LISTS files)
    get_filename_component(name "${file}" NAME_WE)
    set(target "weft_${prefix}_${name}")
    file(STRINGS "${file}" verbs REGEX "include <infiniband/verbs.h>")
    if(verbs AND NOT WEFT_VERBS_LIBRARY)
      continue()
    endif()
    add_executable(${target} "${file}")
    if(verbs)
      target_link_libraries(${target} PRIVATE ${WEFT_VERBS_LIBRARY})
    else()
      # The modules are there for what is measured without a library between; static, so only what is named gets in.
      target_link_libraries(${target} PRIVATE ${WEFT_MODULE_TARGETS} PkgConfig::LIBFABRIC ${CMAKE_DL_LIBS})
    endif()
    file(STRINGS "${file}" options REGEX "include \"command_line.hpp\"")
    if(options)
      target_link_libraries(${target} PRIVATE CLI11::CLI11)
    endif()
    file(STRINGS "${file}" micro REGEX "include <benchmark/benchmark.h>")
    if(micro)
      target_link_libraries(${target} PRIVATE benchmark::benchmark_main)
    endif()
    set_target_properties(${target} PROPERTIES OUTPUT_NAME "${name}"
                                               RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/${folder}")
  endforeach()
endfunction()

if(WEFT_BENCH)
  find_package(benchmark REQUIRED)
  find_package(CLI11 REQUIRED)
  weft_programs(bench)
  weft_programs(examples)
  # The same source linked in other ways, for bench/link.py.
  add_executable(weft_bench_ops_mux "${PROJECT_SOURCE_DIR}/bench/callgrind_ops.cpp")
  target_link_libraries(weft_bench_ops_mux PRIVATE weft::mux CLI11::CLI11)
  set_target_properties(weft_bench_ops_mux PROPERTIES OUTPUT_NAME callgrind_ops_mux RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
  add_executable(weft_bench_ops_direct "${PROJECT_SOURCE_DIR}/bench/callgrind_ops.cpp")
  target_link_libraries(weft_bench_ops_direct PRIVATE weft::direct::shm CLI11::CLI11)
  set_target_properties(weft_bench_ops_direct PROPERTIES OUTPUT_NAME callgrind_ops_direct RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
  # All of them: what `./dev bench` builds.
  get_property(targets DIRECTORY "${PROJECT_SOURCE_DIR}" PROPERTY BUILDSYSTEM_TARGETS)
  list(FILTER targets INCLUDE REGEX "^weft_bench_")
  add_custom_target(weft_benches DEPENDS ${targets})
endif()

# A provider of somebody else, as far as we are concerned: build/<preset>/examples/c_plugin/libexample-fi.so.
if(WEFT_TESTS)
  add_subdirectory("${PROJECT_SOURCE_DIR}/examples/c_plugin" "${PROJECT_BINARY_DIR}/examples/c_plugin")
  # And one over the kit for authors: build/<preset>/examples/minimal_provider/libminimal-fi.so.
  add_subdirectory("${PROJECT_SOURCE_DIR}/examples/minimal_provider" "${PROJECT_BINARY_DIR}/examples/minimal_provider")
endif()
