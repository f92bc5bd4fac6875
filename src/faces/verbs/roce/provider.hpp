// The provider that is built into libibverbs.so.1: RoCEv2 in software. Must not know the library that calls it.
#pragma once

#include <weft/verbs_provider.h>

namespace weft::verbs {

// Complete, and valid for the life of the process. Any thread.
const weft_verbs_provider& roce_provider() noexcept;

}  // namespace weft::verbs
