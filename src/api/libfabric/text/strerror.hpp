// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_strerror(3): a sentence for every errno and FI_E* value. Must not know who failed.
#pragma once

namespace weft::fi {

// The text of `code`, whose sign is ignored. Never null. Static storage, except for numbers nobody defined:
// those share one buffer per thread. Any thread.
const char* error_text(int code) noexcept;

}  // namespace weft::fi
