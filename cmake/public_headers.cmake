# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Copies our headers so that they stand below weft/src/ and include each other from there: a program has folders of its own that are called
# base or core. cmake -DLIST=<file with names> -DFROM=<folder> -DTO=<folder> -P public_headers.cmake
file(STRINGS "${LIST}" names)
foreach(name IN LISTS names)
  file(READ "${FROM}/${name}" text)
  string(REGEX REPLACE "#include \"" "#include \"weft/src/" text "${text}")
  # A program's warnings are about the program.
  string(REPLACE "#pragma once\n" "#pragma once\n#pragma GCC system_header\n" text "${text}")
  set(old "")
  if(EXISTS "${TO}/${name}")
    file(READ "${TO}/${name}" old)
  endif()
  if(NOT text STREQUAL old)
    file(WRITE "${TO}/${name}" "${text}")
  endif()
endforeach()
