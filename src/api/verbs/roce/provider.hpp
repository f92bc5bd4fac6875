// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider of verbs devices that is built in: RoCEv2 in software. docs/verbs.md has the design.
#pragma once

#include <weft/verbs_provider.h>

namespace weft::verbs {

const weft_verbs_provider& roce_provider() noexcept;

}  // namespace weft::verbs
