# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# WEFT_LEAKS_WORK: 1 where LeakSanitizer can stop the process to look at it (a container or a tracer may forbid it), else 0.
set(probe "${PROJECT_BINARY_DIR}/leak_probe")
file(WRITE "${probe}.cpp" "int main() { return 0; }\n")
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -fsanitize=address "${probe}.cpp" -o "${probe}" RESULT_VARIABLE built)
execute_process(COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=1 "${probe}" RESULT_VARIABLE ran OUTPUT_QUIET ERROR_QUIET)
if(built EQUAL 0 AND ran EQUAL 0)
  set(WEFT_LEAKS_WORK 1)
else()
  set(WEFT_LEAKS_WORK 0)
  message(STATUS "weft: leaks cannot be looked for here")
endif()
