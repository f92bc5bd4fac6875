// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Who has devices: the built-in provider, those that registered, and the shared objects of WEFT_VERBS_PROVIDERS. Must not know what a device is
// good for.
#pragma once

#include <string>
#include <vector>

#include <weft/verbs_provider.h>

namespace weft::verbs {

// A provider as this library knows it: a shorter struct of an older one is zero beyond its size.
struct Provider {
  weft_verbs_provider calls;
  std::string name;
  enum class State { New, Started, LeftOut } state = State::New;
};

// weft_verbs_register(). Any thread, also while the library is loading that provider.
int register_provider(const weft_verbs_provider* provider) noexcept;

// All that started, the built-in one last: a device of somebody else is chosen before ours. The first call loads WEFT_VERBS_PROVIDERS. They
// live as long as the process. Any thread. Throws std::bad_alloc.
std::vector<const Provider*> providers();

// What providers call: weft_verbs_services.
const weft_verbs_services& services() noexcept;

}  // namespace weft::verbs
