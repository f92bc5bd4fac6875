// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// pthread_atfork(3), once when the library is loaded; dlclose(3) takes the handler back.
#include "os/origin.hpp"

#include <pthread.h>

namespace weft::os {

std::atomic<uint32_t> forks_behind{0};

namespace {

[[maybe_unused]] const int registered =
    ::pthread_atfork(nullptr, nullptr, [] { forks_behind.fetch_add(1, std::memory_order_relaxed); });

}  // namespace
}  // namespace weft::os
