// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/libfabric/endpoints/unreported_warning.hpp"

#include <atomic>
#include <new>
#include <string>

#include "api/libfabric/text/log.hpp"
#include "api/libfabric/text/strerror.hpp"
#include "core/provider_error.hpp"
#include "os/clock.hpp"

namespace weft::fi {

namespace {

std::atomic<uint64_t> warned_at_ns{0};
std::atomic<uint32_t> withheld{0};

bool may_warn() noexcept {
  const uint64_t now = os::monotonic_ns();
  uint64_t last = warned_at_ns.load(std::memory_order_relaxed);
  if ((last == 0 || now >= last + 2'000'000'000) &&
      warned_at_ns.compare_exchange_strong(last, now, std::memory_order_relaxed))
    return true;
  withheld.fetch_add(1, std::memory_order_relaxed);
  return false;
}

}  // namespace

void warn_of_unreported(const Provider& provider, uint32_t format,
                        const core::UnreportedErrors& errors) noexcept try {
  const auto why = core::ProviderError(errors.prov_errno);
  const fi_log_level level = why == core::ProviderError::PeerClosed ? FI_LOG_INFO : FI_LOG_WARN;
  if (level == FI_LOG_WARN && !may_warn()) return;
  if (!log_enabled(level, FI_LOG_EP_DATA, provider.name)) return;
  std::string line = errors.peer.empty() ? "the peer" : provider.to_string(format, errors.peer.data());
  line += errors.peer_lost ? ": " : ": an inject failed: ";
  line += why == core::ProviderError::None ? error_text(errors.err) : core::to_text(why);
  if (errors.peer_lost)
    line += "; messages to it that were injected, or had completed, may not have reached it";
  line += "; no completion entry says so (WEFT_INJECT_ERRORS=yes: one does)";
  if (level != FI_LOG_WARN) return log_info(provider.name, FI_LOG_EP_DATA, "%s", line.c_str());
  if (const uint32_t others = withheld.exchange(0, std::memory_order_relaxed); others != 0)
    line.append("; ").append(std::to_string(others)).append(" more since the last such line");
  log_warn(provider.name, FI_LOG_EP_DATA, "%s", line.c_str());
} catch (const std::bad_alloc&) {  // the counters have it
}

}  // namespace weft::fi
