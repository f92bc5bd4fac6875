# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Each tests/fuzz/*.cpp is one libFuzzer program over the modules. Needs clang (preset fuzz).
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "weft: fuzz targets need clang, use the preset fuzz")
endif()
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/fuzz/*.cpp")
if(NOT files)
  message(STATUS "weft: no tests/fuzz/*.cpp yet")
endif()
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME_WE)
  add_executable(weft_fuzz_${name} "${file}")
  target_link_libraries(weft_fuzz_${name} PRIVATE ${WEFT_MODULE_TARGETS})
  target_compile_options(weft_fuzz_${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(weft_fuzz_${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(weft_fuzz_${name} PROPERTIES OUTPUT_NAME "${name}"
                                                     RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/fuzz")
endforeach()
