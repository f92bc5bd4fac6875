# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Writes OUT, a header with the revision of SOURCE: what git says, or the file REVISION of a source archive. Only when that has changed.
set(revision "")
if(EXISTS "${SOURCE}/.git")
  execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
elseif(EXISTS "${SOURCE}/REVISION")
  file(STRINGS "${SOURCE}/REVISION" revision LIMIT_COUNT 1)
endif()
if(NOT revision)
  set(revision unknown)
endif()
file(CONFIGURE OUTPUT "${OUT}" CONTENT "#define WEFT_REVISION \"${revision}\"\n" @ONLY)
