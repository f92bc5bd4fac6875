// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Settings with malformed values, and names of settings that do not exist: one warning each. Must not know who reads them.
#pragma once

namespace weft::fi {

// From now on everything finds its settings in the environment and the configuration file. Idempotent. Any thread.
void read_settings() noexcept;

// Looks at the environment and the configuration file once, at the first call. Any thread.
void report_settings() noexcept;

// The same at every call. For tests.
void report_settings_now() noexcept;

}  // namespace weft::fi
