// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sentences for FI_E* values; the system's own for errno values. Must not know who failed.
#include "api/libfabric/text/strerror.hpp"

#include <rdma/fi_errno.h>

#include <cstdio>
#include <cstring>

#include "api/libfabric/abi/values.hpp"

namespace weft::fi {
namespace {

// By value, from FI_ERRNO_OFFSET on (fi_errno(3)).
constexpr const char* kTexts[] = {
    "Another error, named by the provider only",
    "The buffer that was given is too small",
    "The object is not in a state that allows this operation",
    "An error is available, read it with readerr",
    "A flag is not supported here",
    "An event queue is missing or cannot be used",
    "The object belongs to another domain",
    "A completion queue is missing or cannot be used",
    "The checksum of a message is wrong",
    "The message was longer than the receive buffer and was cut",
    "A key that is needed is missing or not valid",
    "An address vector is missing or cannot be used",
    "A queue has overflowed",
    "The receiver had no buffer posted",
    "No more memory can be registered",
    "The host is behind a firewall and cannot be reached",
};
constexpr unsigned kEnd = later::efirewalladdr + 1;
static_assert(sizeof kTexts / sizeof *kTexts == kEnd - FI_ERRNO_OFFSET);

}  // namespace

const char* error_text(int code) noexcept {
  // INT_MIN has no opposite.
  const unsigned value = code < 0 ? 0u - static_cast<unsigned>(code) : static_cast<unsigned>(code);
  if (value == 0) return "Success";
  if (value >= FI_ERRNO_OFFSET && value < kEnd) return kTexts[value - FI_ERRNO_OFFSET];
  if (value < FI_ERRNO_OFFSET) {
    thread_local char buffer[128];
    // The GNU form returns a constant for the values it knows and fills the buffer for others.
    return strerror_r(static_cast<int>(value), buffer, sizeof buffer);
  }
  thread_local char unknown[64];
  snprintf(unknown, sizeof unknown, "Unknown error %u", value);
  return unknown;
}

}  // namespace weft::fi
