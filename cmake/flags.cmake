# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Language, warnings and code generation for everything that is compiled here.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()

if(NOT CMAKE_BUILD_TYPE)
  if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Kind of build" FORCE)
  else()
    set(CMAKE_BUILD_TYPE Release)  # here and below
  endif()
endif()

add_compile_options(-Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
if(WEFT_WERROR)
  add_compile_options(-Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # These depend on what the optimiser happens to see and are known to cry wolf; they stay warnings.
    add_compile_options(-Wno-error=maybe-uninitialized -Wno-error=array-bounds -Wno-error=stringop-overflow
                        -Wno-error=stringop-overread -Wno-error=restrict -Wno-error=tsan -Wno-error=free-nonheap-object)
  endif()
endif()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # Every x86-64 processor, as of Debian's own packages; never the building one (-march=native). Later instructions are chosen at run time.
  add_compile_options(-march=x86-64)
endif()

if(WEFT_SANITIZE)
  add_compile_options(-fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${WEFT_SANITIZE})
  if(WEFT_SANITIZE MATCHES "undefined")
    # Programs in C may give any number where a call takes an enumeration, and calls refuse what they do not know. g++ keeps such values
    # (it assumes otherwise only with -fstrict-enums).
    add_compile_options(-fno-sanitize-recover=undefined -fno-sanitize=enum)
  endif()
endif()

# Invariants are checked (src/base/assert.hpp) in every build but those for use.
if(CMAKE_BUILD_TYPE STREQUAL "Debug" OR WEFT_SANITIZE)
  set(WEFT_ASSERTIONS_DEFAULT ON)
else()
  set(WEFT_ASSERTIONS_DEFAULT OFF)
endif()
option(WEFT_ASSERTIONS "Evaluate WEFT_ASSERT" ${WEFT_ASSERTIONS_DEFAULT})
if(WEFT_ASSERTIONS)
  add_compile_definitions(WEFT_ASSERTIONS)
endif()

if(WEFT_LTO)
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
endif()
