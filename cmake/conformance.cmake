# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The conformance program: written against the standard interface alone. The tests run it over each of our providers, `weft check` over
# anybody's, so it is installed. GoogleTest is linked statically; whichever libfabric.so.1 comes first in the loader's path is tested.
if(NOT WEFT_TOOLS AND NOT WEFT_TESTS)
  return()
endif()
find_package(GTest QUIET)
file(GLOB_RECURSE files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/conformance/*.cpp")
if(files AND GTest_FOUND)
  add_executable(weft_conformance ${files})
  target_include_directories(weft_conformance PRIVATE "${PROJECT_SOURCE_DIR}/tests" "${PROJECT_SOURCE_DIR}/tests/conformance"
                                                   "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(weft_conformance PRIVATE PkgConfig::LIBFABRIC GTest::gmock GTest::gtest Threads::Threads)
  set_target_properties(weft_conformance PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/libexec/weft")
else()
  message(STATUS "weft: no GoogleTest (libgtest-dev): no conformance program, and `weft check` has nothing to run")
endif()
