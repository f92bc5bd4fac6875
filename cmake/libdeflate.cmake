# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# CRC-32 for the ICRC of RoCEv2 (docs/decisions/0017-crc-32-of-libdeflate.md). The static library where there is one: our shared libraries bring no
# other with them.
find_path(WEFT_LIBDEFLATE_INCLUDE libdeflate.h)
find_library(WEFT_LIBDEFLATE NAMES libdeflate.a deflate)
if(NOT WEFT_LIBDEFLATE_INCLUDE OR NOT WEFT_LIBDEFLATE)
  message(FATAL_ERROR "weft: libdeflate is not found: install libdeflate-dev, or ./dev setup")
endif()
add_library(weft_libdeflate INTERFACE)
target_include_directories(weft_libdeflate SYSTEM INTERFACE "${WEFT_LIBDEFLATE_INCLUDE}")
target_link_libraries(weft_libdeflate INTERFACE "${WEFT_LIBDEFLATE}")
