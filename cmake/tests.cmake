# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Unit tests of each module, conformance tests once for each provider, and system tests (programs and scripts).
# Every gtest case is a test of its own for ctest: a crash costs one case, and the counts are real.
find_package(GTest REQUIRED)
include(GoogleTest)

if(WEFT_SANITIZE)
  set(WEFT_TIMEOUT_CASE 240)
  set(WEFT_TIMEOUT_SYSTEM 1200)
elseif(CMAKE_CROSSCOMPILING)
  # An emulator takes 10 to 30 times as long.
  set(WEFT_TIMEOUT_CASE 900)
  set(WEFT_TIMEOUT_SYSTEM 3600)
else()
  set(WEFT_TIMEOUT_CASE 60)
  set(WEFT_TIMEOUT_SYSTEM 600)
endif()

# Before the command of a test whose programs are not of this machine; gtest_discover_tests knows it by itself.
set(WEFT_TEST_LAUNCHER "")
if(CMAKE_CROSSCOMPILING)
  set(WEFT_TEST_LAUNCHER ${CMAKE_CROSSCOMPILING_EMULATOR})
endif()

# What every test sees. Children of tests inherit it.
set(env "WEFT_BUILD=${PROJECT_BINARY_DIR}" "WEFT_STAGE=${WEFT_STAGE}" "WEFT_SOURCE=${PROJECT_SOURCE_DIR}"
        "WEFT_SANITIZE=${WEFT_SANITIZE}")
if(WEFT_SANITIZE MATCHES "address")
  include(cmake/leak_probe.cmake)
  list(APPEND env "ASAN_OPTIONS=detect_leaks=${WEFT_LEAKS_WORK}:detect_stack_use_after_return=1:abort_on_error=0"
       "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1" "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/lsan.supp:print_suppressions=0")
  # A program that was not built here must load the runtime first to use our library: LD_PRELOAD=$WEFT_PRELOAD.
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libasan.so OUTPUT_VARIABLE preload
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(REAL_PATH "${preload}" preload)
  list(APPEND env "WEFT_PRELOAD=${preload}")
elseif(WEFT_SANITIZE MATCHES "thread")
  list(APPEND env "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libtsan.so OUTPUT_VARIABLE preload
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(REAL_PATH "${preload}" preload)
  list(APPEND env "WEFT_PRELOAD=${preload}")
endif()
set(WEFT_TEST_ENV "${env}")
set(WEFT_TEST_ENV_OURS "${env}" "LD_LIBRARY_PATH=${WEFT_COMPAT_DIR}")

# System tests name, count and kill: each on a host of its own, if this machine gives namespaces, or else one after the other.
set(WEFT_ISOLATED bash "${PROJECT_SOURCE_DIR}/tests/isolated.sh")
execute_process(COMMAND ${CMAKE_COMMAND} -E env "WEFT_SOURCE=${PROJECT_SOURCE_DIR}" "WEFT_BUILD=${PROJECT_BINARY_DIR}" ${WEFT_ISOLATED} true
                WORKING_DIRECTORY "${PROJECT_BINARY_DIR}" RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
if(NOT status EQUAL 0)
  message(STATUS "weft: no namespaces here (unshare(1)): system tests run one at a time")
  set(WEFT_ISOLATED "")
endif()
# Some compile and link in folders of their own, and need no host of their own to run beside others. Some measure, or look at what the whole machine has:
# alone on it, and not on a host of their own.
set(WEFT_BESIDE_OTHERS "^(direct|vendor_test|libfabric_headers_test|wrong_archive_test|consumer_test|relocate_test|mux_test|checks_test|extensions_test|provider_versions_test)$")
set(WEFT_ALONE "^(busy_processors|progress|hang|oversubscribed|loss|asleep|leftovers)_test$")

# What an emulator cannot show: regular expressions on names of tests, each with its reason.
set(WEFT_NOT_HERE "")
if(CMAKE_CROSSCOMPILING)
  set(file "${PROJECT_SOURCE_DIR}/tests/arm64/skipped.txt")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(STRINGS "${file}" rows REGEX "^[^#].*\t")
  foreach(row IN LISTS rows)
    string(REGEX REPLACE "\t.*" "" pattern "${row}")
    string(APPEND WEFT_NOT_HERE "${WEFT_NOT_HERE_BAR}${pattern}")
    set(WEFT_NOT_HERE_BAR "|")
  endforeach()
endif()

# weft_gtest(<target> <name> <label> <environment...>): registers each case of a program under "<name>: ".
# The environment is set by an included file, for gtest_discover_tests cannot carry a list. WEFT_GTEST_FILTER leaves out cases.
function(weft_gtest target name label)
  set(list "weft_cases_${target}_${name}")
  set(filter "")
  if(WEFT_GTEST_FILTER)
    set(filter TEST_FILTER "${WEFT_GTEST_FILTER}")
  endif()
  gtest_discover_tests(${target} TEST_PREFIX "${name}: " TEST_LIST ${list} ${filter} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT ${WEFT_TIMEOUT_CASE}
                       WORKING_DIRECTORY "${PROJECT_BINARY_DIR}" EXTRA_ARGS --gtest_color=no
                       PROPERTIES LABELS ${label} TIMEOUT ${WEFT_TIMEOUT_CASE})
  set(file "${PROJECT_BINARY_DIR}/test_env/${list}.cmake")
  file(WRITE "${file}" "if(${list})\n  set_tests_properties(\${${list}} PROPERTIES ENVIRONMENT \"${ARGN}\")\nendif()\n")
  if(WEFT_NOT_HERE)
    file(APPEND "${file}" "foreach(test IN LISTS ${list})\n  if(test MATCHES [=[${WEFT_NOT_HERE}]=])\n    set_tests_properties(\"\${test}\" PROPERTIES DISABLED TRUE)\n  endif()\nendforeach()\n")
  endif()
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${file}")
endfunction()

# --- unit: src/<module>/**/*_test.cpp, linked with the module and those above it (which come with it) ---
# Tests that compile engines of their own and run a moment. To optimise them was most of what a change of engine.hpp cost, and what programs run
# is optimised where it is compiled for programs, which the conformance cases run over. They are programs of their own, or the linker would take
# their copies of inline functions for all tests of the module. The other presets say -O1 for everything.
set(WEFT_PLAIN_TESTS "/(proto/engine/(engine|leaving|link_concepts)|link/(message/(engine|frame_sizes)|tcp/frame_sizes)|endpoints/device)_test\\.cpp$")
# The sources of tests in release. What programs run is optimised in the libraries that the tests are linked with; the sources of the tests are
# compiled without it, which takes between half and a fifth of the time. proto is an exception, for its simulators compute for long and are in no
# library.
function(weft_plain_code target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()
# GoogleTest's headers, which take most of the time of a small test, are read once for all tests that are not optimised. With -O3 g++ takes longer
# with a precompiled header than without.
file(WRITE "${PROJECT_BINARY_DIR}/test_headers.cpp" "int main() {}\n")
add_executable(weft_test_headers EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/test_headers.cpp")
target_link_libraries(weft_test_headers PRIVATE GTest::gmock Threads::Threads)
target_precompile_headers(weft_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
weft_plain_code(weft_test_headers)
function(weft_test_headers target)
  target_precompile_headers(${target} REUSE_FROM weft_test_headers)
endfunction()

function(weft_unit target module name)
  add_executable(${target} ${ARGN})
  target_link_libraries(${target} PRIVATE ${module} GTest::gmock GTest::gtest_main)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/unit")
  weft_gtest(${target} ${name} unit ${WEFT_TEST_ENV})
endfunction()
# The engine's own sources for those tests, so that their assertions are evaluated; the linker then takes none of them from the library.
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/proto/engine/*.cpp")
list(FILTER files EXCLUDE REGEX "_test\\.cpp$")
add_library(weft_asserting_engine OBJECT EXCLUDE_FROM_ALL ${files})
target_include_directories(weft_asserting_engine PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include" ${LIBFABRIC_INCLUDE_DIRS})
target_compile_definitions(weft_asserting_engine PRIVATE WEFT_ASSERTIONS)
target_compile_options(weft_asserting_engine PRIVATE -O0)
foreach(module IN LISTS WEFT_MODULES)
  weft_module_target(target "${module}")
  file(GLOB_RECURSE files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${module}/*_test.cpp")
  if(files)
    string(REPLACE "weft_" "" name "${target}")
    set(plain "")
    if(CMAKE_BUILD_TYPE STREQUAL "Release")
      set(plain ${files})
      list(FILTER plain INCLUDE REGEX "${WEFT_PLAIN_TESTS}")
      list(FILTER files EXCLUDE REGEX "${WEFT_PLAIN_TESTS}")
    endif()
    weft_unit(${target}_test ${target} ${name} ${files})
    if(NOT module STREQUAL "proto")
      weft_test_headers(${target}_test)
      weft_plain_code(${target}_test)
    endif()
    if(plain)
      if(module STREQUAL "proto")
        list(APPEND plain "${PROJECT_SOURCE_DIR}/src/proto/engine/sim_engines_test.cpp")
      endif()
      list(APPEND plain $<TARGET_OBJECTS:weft_asserting_engine>)
      weft_unit(${target}_plain_test ${target} ${name} ${plain})
      target_compile_options(${target}_plain_test PRIVATE -O0)
      target_compile_definitions(${target}_plain_test PRIVATE WEFT_ASSERTIONS)
      add_dependencies(${target}_test ${target}_plain_test)  # ./dev test NAME builds the test of the module
    endif()
  endif()
endforeach()

file(GLOB_RECURSE files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tools/weft/*_test.cpp")
if(files AND TARGET weft)
  add_executable(weft_tool_test ${files})
  target_link_libraries(weft_tool_test PRIVATE weft_tool_parts GTest::gmock GTest::gtest_main)
  weft_test_headers(weft_tool_test)
  weft_plain_code(weft_tool_test)
  set_target_properties(weft_tool_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/unit")
  weft_gtest(weft_tool_test tool unit ${WEFT_TEST_ENV})
endif()

# --- kernel: the headers of kernel/ that say what travels, compiled in user space, against those of the library ---
if("link" IN_LIST WEFT_MODULES)
  weft_unit(weft_kernel_wire_test weft_link kernel tests/kernel/wire_test.cpp tests/kernel/wire_kernel.c tests/kernel/wire_block_target.c)
  target_include_directories(weft_kernel_wire_test PRIVATE tests/kernel examples)
  set_source_files_properties(tests/kernel/wire_kernel.c PROPERTIES COMPILE_OPTIONS
    "-std=gnu11;-isystem${PROJECT_SOURCE_DIR}/tests/kernel/include;-isystem${PROJECT_SOURCE_DIR}/kernel/include;-isystem${PROJECT_SOURCE_DIR}/kernel")
  # Its main() has another name here.
  set_source_files_properties(tests/kernel/wire_block_target.c PROPERTIES COMPILE_OPTIONS "-D_GNU_SOURCE;-Wno-return-type")
  target_link_libraries(weft_kernel_wire_test PRIVATE PkgConfig::LIBFABRIC)
endif()

# --- conformance: one program against the standard interface, over our drop-in, once for each provider ---
if(TARGET weft_conformance AND TARGET weft_compat)
  add_dependencies(weft_conformance weft_compat)
  # A name with a semicolon cannot stand in a list: "udp+ofi_rxd" means udp;ofi_rxd, and the program knows that.
  foreach(provider IN LISTS WEFT_TEST_PROVIDERS)
    weft_gtest(weft_conformance ${provider} conformance ${WEFT_TEST_ENV_OURS} "WEFT_TEST_PROVIDER=${provider}")
  endforeach()
  # What moves data, again between two endpoints that are connected to each other.
  string(JOIN ":" WEFT_GTEST_FILTER "Messages.*" "Tagged.*" "TaggedRecv.*" "MultiRecv.*" "Peeked.*" "Rma.*" "Atomic.*" "Batches.*" "Completions.*"
                                    "Counter.*" "Order.*" "Flood.*" "Fence.*" "Trigger.*" "DeferredWork.*" "Region.*" "Wrong.*" "Close.*" "Flags.*" "Calls/NeverEmpty.*")
  foreach(provider IN LISTS WEFT_TEST_MSG_PROVIDERS)
    weft_gtest(weft_conformance ${provider}-msg conformance ${WEFT_TEST_ENV_OURS} "WEFT_TEST_PROVIDER=${provider}"
               "WEFT_TEST_ENDPOINT=msg")
  endforeach()
  unset(WEFT_GTEST_FILTER)
  if(NOT WEFT_PROVIDERS)
    # Messages over connections: ours, and those of a plugin. The "+" stands for a semicolon, which would be a list here.
    weft_gtest(weft_conformance tcp+ofi_rxm conformance ${WEFT_TEST_ENV_OURS} "WEFT_TEST_PROVIDER=tcp+ofi_rxm")
    weft_gtest(weft_conformance verbs+ofi_rxm conformance ${WEFT_TEST_ENV_OURS} "WEFT_TEST_PROVIDER=verbs+ofi_rxm")
    weft_gtest(weft_conformance example+ofi_rxm conformance ${WEFT_TEST_ENV_OURS} "WEFT_TEST_PROVIDER=example+ofi_rxm"
               "FI_PROVIDER_PATH=${PROJECT_BINARY_DIR}/examples/c_plugin")
    add_dependencies(weft_conformance example_provider)
    # Reliability over the datagrams of a plugin.
    weft_gtest(weft_conformance weft_udp+ofi_rxd conformance ${WEFT_TEST_ENV_OURS} "WEFT_TEST_PROVIDER=weft_udp+ofi_rxd"
               "FI_PROVIDER_PATH=${PROJECT_BINARY_DIR}/tests/datagram_plugin" "WEFT_RELIABLE_TIMEOUT_S=5")
    file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/tests/datagram_plugin")
    file(CREATE_LINK "${WEFT_PLUGIN_DIR}/libweft-udp-fi.so" "${PROJECT_BINARY_DIR}/tests/datagram_plugin/libweft-udp-fi.so" SYMBOLIC)
    add_dependencies(weft_conformance weft_plugin_udp)
    # Reliability over the packets of an author's type.
    weft_gtest(weft_conformance minimal conformance ${WEFT_TEST_ENV_OURS} "WEFT_TEST_PROVIDER=minimal"
               "FI_PROVIDER_PATH=${PROJECT_BINARY_DIR}/examples/minimal_provider")
    add_dependencies(weft_conformance minimal_provider)
    # The composite once more, with nobody near.
    if("weft" IN_LIST WEFT_TEST_PROVIDERS)
      weft_gtest(weft_conformance weft_far conformance ${WEFT_TEST_ENV_OURS} "WEFT_TEST_PROVIDER=weft" "FI_WEFT_SHM=0")
    endif()
  endif()
else()
  message(STATUS "weft: the drop-in is not there: conformance tests are not run")
endif()

# What is on the way of a message and in no header.
set(WEFT_WALKED_SOURCES api/libfabric/objects/cq.cpp core/matching.cpp proto/reliable/core.cpp proto/reliable/transmit.cpp proto/reliable/send_stream.cpp
    proto/reliable/receive_stream.cpp link/tcp/channel.cpp link/tcp/link.cpp link/udp/packets.cpp link/shm/link.cpp os/udp_socket.cpp proto/engine/transmit.cpp
    proto/engine/remote.cpp proto/engine/send_completion.cpp)
set(WEFT_WALK_OPTIONS -O0 -fno-pie -fno-lto -finstrument-functions -Dalways_inline=noinline)

# weft_system_test(<test> <name> <environment> <command...>): exit status 77 means "cannot be tested here".
function(weft_system_test test name env)
  if(WEFT_ISOLATED AND NOT name MATCHES "${WEFT_ALONE}")
    add_test(NAME "${test}" COMMAND ${WEFT_ISOLATED} ${WEFT_TEST_LAUNCHER} ${ARGN} WORKING_DIRECTORY "${PROJECT_BINARY_DIR}")
  else()
    add_test(NAME "${test}" COMMAND ${WEFT_TEST_LAUNCHER} ${ARGN} WORKING_DIRECTORY "${PROJECT_BINARY_DIR}")
    if(NOT name MATCHES "${WEFT_BESIDE_OTHERS}")
      set_tests_properties("${test}" PROPERTIES RUN_SERIAL TRUE)
    endif()
  endif()
  # The longest first, or the last ones run alone. Seconds of one machine: their order counts.
  set(cost 0)
  if(test MATCHES "direct_test (net|weft)|programs_test|namespaces_test")
    set(cost 60)
  elseif(test MATCHES "direct_test|vendor|kernel_vm|weft_command|reborn|mpi (over|between)|shared_copy|: provider_test|check_test|top_test|goodbye")
    set(cost 30)
  endif()
  set_tests_properties("${test}" PROPERTIES LABELS system TIMEOUT ${WEFT_TIMEOUT_SYSTEM} SKIP_RETURN_CODE 77 ENVIRONMENT "${env}" COST ${cost})
  if(WEFT_NOT_HERE AND test MATCHES "${WEFT_NOT_HERE}")
    set_tests_properties("${test}" PROPERTIES DISABLED TRUE)
  endif()
endfunction()

# --- system: programs (run by scripts, or by ctest when named *_test.cpp) and scripts named *_test.sh ---
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/system/*.cpp")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME_WE)
  add_executable(weft_system_${name} "${file}")
  target_include_directories(weft_system_${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests" "${PROJECT_SOURCE_DIR}/tests/system" "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(weft_system_${name} PRIVATE PkgConfig::LIBFABRIC Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(weft_system_${name} PROPERTIES OUTPUT_NAME "${name}"
                                                       RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/system")
  if(name STREQUAL "busy_processors_test")  # its sched_yield() is the library's
    set_target_properties(weft_system_${name} PROPERTIES ENABLE_EXPORTS ON)
  endif()
  if(name MATCHES "_test$")
    weft_system_test("system: ${name}" ${name} "${WEFT_TEST_ENV_OURS}" $<TARGET_FILE:weft_system_${name}>)
  endif()
endforeach()
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/system/*_test.sh" "${PROJECT_SOURCE_DIR}/tests/install/*_test.sh"
     "${PROJECT_SOURCE_DIR}/tests/check/*_test.sh" "${PROJECT_SOURCE_DIR}/tests/compat/*_test.sh")
list(FILTER files EXCLUDE REGEX "/direct_test\\.sh$")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME_WE)
  weft_system_test("system: ${name}" ${name} "${WEFT_TEST_ENV}" bash "${file}")
endforeach()
# Direct linking compiles for long: its parts run beside each other, one compiler at a time each. "tree" installs for them.
foreach(part IN ITEMS tree shm weft net headers generations calls)  # of direct_test
  weft_system_test("system: direct_test ${part}" direct "${WEFT_TEST_ENV}" bash "${PROJECT_SOURCE_DIR}/tests/install/direct_test.sh" ${part})
  set_tests_properties("system: direct_test ${part}" PROPERTIES FIXTURES_REQUIRED direct_tree)
endforeach()
set_tests_properties("system: direct_test tree" PROPERTIES FIXTURES_REQUIRED "" FIXTURES_SETUP direct_tree)
# --- MPI: programs of others and one of ours over each provider that Open MPI can take; tests/mpi/run.sh knows mpirun ---
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/mpi/*.cpp")
find_package(MPI QUIET COMPONENTS CXX)
if(files AND MPI_CXX_FOUND)
  add_executable(weft_mpi_walk ${files})
  target_link_libraries(weft_mpi_walk PRIVATE MPI::MPI_CXX Threads::Threads)
  target_compile_definitions(weft_mpi_walk PRIVATE OMPI_SKIP_MPICXX)
  set_target_properties(weft_mpi_walk PROPERTIES OUTPUT_NAME walk RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/mpi")
else()
  message(STATUS "weft: no MPI (libopenmpi-dev): its tests are skipped")
endif()
foreach(provider IN ITEMS weft shm tcp udp_ofi_rxd tcp_ofi_rxm verbs_ofi_rxm)  # a semicolon would be a list
  weft_system_test("system: mpi over ${provider}" mpi "${WEFT_TEST_ENV}" bash "${PROJECT_SOURCE_DIR}/tests/mpi/mpi_test.sh" ${provider})
endforeach()
weft_system_test("system: mpi between hosts" mpi "${WEFT_TEST_ENV}" bash "${PROJECT_SOURCE_DIR}/tests/mpi/hosts_test.sh")

# --- verbs: the drop-in libibverbs.so.1 with a toy device (tests/verbs/toy.c), and both as their next version might be ---
foreach(version IN ITEMS "" -next)
  string(REPLACE "-" "_" target "weft_verbs_toy${version}")
  add_library(${target} MODULE "${PROJECT_SOURCE_DIR}/tests/verbs/toy.c")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include")
  # The library comes with the program.
  target_link_libraries(${target} PRIVATE weft_verbs Threads::Threads)
  set_target_properties(${target} PROPERTIES PREFIX "lib" OUTPUT_NAME "toy${version}" LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/verbs"
                                             SKIP_BUILD_RPATH ON)
endforeach()
target_compile_definitions(weft_verbs_toy_next PRIVATE WEFT_VERBS_NEXT)
if(NOT WEFT_SANITIZE)
  weft_sources(verbs_sources "src/api/verbs")
  weft_module_target(verbs_above "link")
  add_library(weft_verbs_next SHARED ${entry_verbs} ${verbs_sources})
  target_compile_definitions(weft_verbs_next PRIVATE WEFT_VERBS_NEXT)
  target_compile_options(weft_verbs_next PRIVATE -O0 -g0)
  weft_self_contained(weft_verbs_next "${verbs}/entry/libibverbs.map" ${verbs_above})
  set_target_properties(weft_verbs_next PROPERTIES OUTPUT_NAME ibverbs VERSION ${WEFT_VERBS_VERSION} SOVERSION 1
                                                   LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/verbs/next")
endif()
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/verbs/*_test.sh")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME_WE)
  weft_system_test("verbs: ${name}" ${name} "${WEFT_TEST_ENV}" bash "${file}")
endforeach()

# --- librdmacm: a program against its public calls, and scripts with programs of others ---
add_executable(weft_rdmacm_connections_test "${PROJECT_SOURCE_DIR}/tests/rdmacm/connections_test.cpp")
target_link_libraries(weft_rdmacm_connections_test PRIVATE weft_rdmacm weft_verbs Threads::Threads)
set_target_properties(weft_rdmacm_connections_test PROPERTIES OUTPUT_NAME connections_test SKIP_BUILD_RPATH ON
                                                              RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/rdmacm")
weft_system_test("rdmacm: connections_test" connections_test "${WEFT_TEST_ENV_OURS}" $<TARGET_FILE:weft_rdmacm_connections_test>)
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/rdmacm/*_test.sh")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME_WE)
  weft_system_test("rdmacm: ${name}" ${name} "${WEFT_TEST_ENV}" bash "${file}")
endforeach()

# --- docs/walk/: what the walks tell, against the functions that a message passes. Everything on its way is compiled without inlining ---
if(NOT WEFT_SANITIZE)
  list(TRANSFORM WEFT_WALKED_SOURCES PREPEND "${PROJECT_SOURCE_DIR}/src/" OUTPUT_VARIABLE files)
  add_library(weft_walk_recorder OBJECT "${PROJECT_SOURCE_DIR}/tests/walk/recorder.cpp")
  set_target_properties(weft_walk_recorder PROPERTIES POSITION_INDEPENDENT_CODE OFF INTERPROCEDURAL_OPTIMIZATION OFF)
  add_library(weft_walked OBJECT ${files})
  target_include_directories(weft_walked PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include" ${LIBFABRIC_INCLUDE_DIRS})
  target_compile_options(weft_walked PRIVATE ${WEFT_WALK_OPTIONS})
  set_target_properties(weft_walked PROPERTIES POSITION_INDEPENDENT_CODE OFF INTERPROCEDURAL_OPTIMIZATION OFF)
  # weft_walk(<name> <texts> <sources>)
  function(weft_walk name texts)
    set(target "weft_walk_${name}")
    add_executable(${target} ${ARGN} $<TARGET_OBJECTS:weft_walk_recorder>)
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
    target_compile_options(${target} PRIVATE ${WEFT_WALK_OPTIONS})
    target_link_options(${target} PRIVATE -no-pie)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME "${name}" RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/walk"
                                               POSITION_INDEPENDENT_CODE OFF INTERPROCEDURAL_OPTIMIZATION OFF)
    list(TRANSFORM texts PREPEND "${PROJECT_SOURCE_DIR}/docs/walk/")
    add_test(NAME "check: walk of ${name}" COMMAND ${WEFT_TEST_LAUNCHER} python3 "${PROJECT_SOURCE_DIR}/tests/walk/walk_test.py" $<TARGET_FILE:${target}> ${texts})
    set_tests_properties("check: walk of ${name}" PROPERTIES LABELS check ENVIRONMENT "${WEFT_TEST_ENV}")
  endfunction()
  # Name, type and file of the provider, bytes of the message, texts.
  foreach(row IN ITEMS "shm Shm shm 8 send.md receive.md" "tcp Tcp tcp 8 tcp.md" "rxd UdpRxd udp_rxd 8 rxd.md" "rxm TcpRxm tcp_rxm 1048576 rxm.md")
    separate_arguments(row UNIX_COMMAND "${row}")
    list(POP_FRONT row name type header bytes)
    weft_walk(${name} "${row}" "${PROJECT_SOURCE_DIR}/tests/walk/trace.cpp" "${PROJECT_SOURCE_DIR}/src/api/direct/entry_direct.cpp"
              "${PROJECT_SOURCE_DIR}/src/api/libfabric/providers/${header}.cpp" $<TARGET_OBJECTS:weft_walked>)
    target_compile_definitions(weft_walk_${name} PRIVATE "WEFT_DIRECT_PROVIDER=${type}" WEFT_DIRECT_PROGRAM=weft_walk WEFT_WALK_BYTES=${bytes})
    target_link_libraries(weft_walk_${name} PRIVATE ${WEFT_MODULE_TARGETS} ${CMAKE_DL_LIBS})
  endforeach()
  # libibverbs.so.1's sources, in the program; the map assigns symbol versions.
  set(sources)
  foreach(folder IN ITEMS api/verbs proto/roce link/roce)
    weft_sources(files "src/${folder}")
    list(APPEND sources ${files})
  endforeach()
  weft_module_target(verbs_above "link")
  weft_walk(verbs verbs.md "${PROJECT_SOURCE_DIR}/tests/walk/trace_verbs.cpp" ${entry_verbs} ${sources}
            "${PROJECT_SOURCE_DIR}/src/link/udp/packets.cpp" "${PROJECT_SOURCE_DIR}/src/os/udp_socket.cpp")
  target_link_libraries(weft_walk_verbs PRIVATE ${verbs_above} ${CMAKE_DL_LIBS})
  target_link_options(weft_walk_verbs PRIVATE "-Wl,--version-script=${verbs}/entry/libibverbs.map")
  set_target_properties(weft_walk_verbs PROPERTIES LINK_DEPENDS "${verbs}/entry/libibverbs.map")
endif()

# --- the rules of the source that are quick to look at; ./dev check has the rest ---
foreach(rule IN ITEMS layers walks paths licences constants requires streams kernel_versions)
  add_test(NAME "check: ${rule}" COMMAND python3 "${PROJECT_SOURCE_DIR}/scripts/check/${rule}.py")
  set_tests_properties("check: ${rule}" PROPERTIES LABELS check)
endforeach()
add_test(NAME "check: kernel style" COMMAND bash "${PROJECT_SOURCE_DIR}/scripts/check/kernel_style.sh")
set_tests_properties("check: kernel style" PROPERTIES LABELS check)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT WEFT_SANITIZE)
  add_test(NAME "check: instructions" COMMAND python3 "${PROJECT_SOURCE_DIR}/scripts/check/instructions.py" "${PROJECT_BINARY_DIR}")
  set_tests_properties("check: instructions" PROPERTIES LABELS check SKIP_RETURN_CODE 77)
endif()
find_program(WEFT_ABIDIFF abidiff)
if(WEFT_ABIDIFF AND NOT WEFT_SANITIZE AND NOT CMAKE_CROSSCOMPILING)  # the baselines are of x86-64
  add_test(NAME "check: abi" COMMAND python3 "${PROJECT_SOURCE_DIR}/scripts/check/abi.py" "${PROJECT_BINARY_DIR}")
  set_tests_properties("check: abi" PROPERTIES LABELS check)
endif()

# --- the library as the next version of weft/extensions.h might have it, with shm alone, for tests/compat/: unoptimised, for it is only called ---
if(NOT WEFT_SANITIZE)
  add_library(weft_compat_next SHARED ${entry_dropin} "${PROJECT_SOURCE_DIR}/tests/compat/next_registry.cpp")
  target_compile_definitions(weft_compat_next PRIVATE WEFT_EXTENSIONS_NEXT)
  target_compile_options(weft_compat_next PRIVATE -O0 -g0)
  weft_self_contained(weft_compat_next "${map_dropin}")
  set_target_properties(weft_compat_next PROPERTIES OUTPUT_NAME fabric VERSION ${WEFT_COMPAT_VERSION} SOVERSION 1
                                                    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/compat/next")
endif()

# --- an engine of messages and nothing else under the libfabric front end, in a library of its own: the conformance cases that apply to it ---
if(TARGET weft_conformance AND NOT WEFT_PROVIDERS)
  add_library(weft_toy SHARED ${entry_dropin} "${PROJECT_SOURCE_DIR}/tests/toy/engine.cpp")
  target_compile_options(weft_toy PRIVATE -O1)
  weft_self_contained(weft_toy "${map_dropin}")
  set_target_properties(weft_toy PROPERTIES OUTPUT_NAME fabric VERSION ${WEFT_COMPAT_VERSION} SOVERSION 1
                                            LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/toy")
  add_dependencies(weft_conformance weft_toy)
  string(JOIN ":" WEFT_GTEST_FILTER "Messages.*" "MultiRecv.*" "Completions.*" "Counter.*" "Order.*" "Flood.*" "Close.*" "Connect*" "Passive*" "Wrong.*")
  # It offers neither delivery complete nor shared contexts, and these cases do not ask.
  string(APPEND WEFT_GTEST_FILTER ":-Completions.delivery_complete_of_unexpected*:Connections.shared_receive_context*")
  weft_gtest(weft_conformance toy conformance ${WEFT_TEST_ENV} "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/tests/toy" "WEFT_TEST_PROVIDER=toy"
             "WEFT_TEST_ENDPOINT=msg")
  unset(WEFT_GTEST_FILTER)
endif()

# --- the core of a plugin as the next minor version of weft/provider.hpp might have it, for tests/compat/: linked before libweft-core.a ---
if(NOT WEFT_SANITIZE)
  add_library(weft_core_next STATIC "${PROJECT_SOURCE_DIR}/src/api/provider/entry_core.cpp" "${PROJECT_SOURCE_DIR}/src/link/kit/tabled.cpp")
  target_compile_definitions(weft_core_next PRIVATE WEFT_PROVIDER_NEXT)
  target_include_directories(weft_core_next PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include" ${LIBFABRIC_INCLUDE_DIRS})
  set_target_properties(weft_core_next PROPERTIES OUTPUT_NAME "weft-core-next" ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/compat")
endif()

# --- plugins for tests/system/plugins_test.sh, most of them broken in one way: build/<preset>/tests/system/plugins/<name>-fi.so ---
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/system/plugins/*.c")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME_WE)
  add_library(weft_test_plugin_${name} MODULE "${file}")
  target_include_directories(weft_test_plugin_${name} PRIVATE ${LIBFABRIC_INCLUDE_DIRS})
  set_target_properties(weft_test_plugin_${name} PROPERTIES PREFIX "" OUTPUT_NAME "${name}-fi" SUFFIX .so
                                                            LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/system/plugins")
endforeach()
