// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fi_getinfo(3) did not find, for one warning when the process ends: a program that asks again with fewer hints, or for another provider, and
// finds something, has nothing to be warned of. Must not know providers or hints.
#pragma once

#include <string>

namespace weft::fi {

// A call has found nothing. `provider` is whose line it will be (log.hpp), `named` whether the program named a provider that there is: others are
// kept only while nothing was found at all. At most four different texts are kept. Any thread.
void note_nothing_found(const std::string& provider, const std::string& why, bool named) noexcept;

// A call has found something: what was kept is forgotten. Any thread.
void note_found() noexcept;

// Logs at level warn what is kept, and forgets it. Called when the process ends in exit(3), or the library is unloaded; by tests before.
void report_nothing_found() noexcept;

}  // namespace weft::fi
