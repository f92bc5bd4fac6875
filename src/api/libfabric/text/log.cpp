// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Logging: reads the environment once, filters by a mask, writes each line with one write(2). Must not know
// what it is told to write.
#include "api/libfabric/text/log.hpp"

#include <strings.h>
#include <unistd.h>
#include <weft/libfabric_retired.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>

#include "api/libfabric/text/provider_names.hpp"
#include "api/libfabric/text/tostr.hpp"
#include "base/lasting.hpp"
#include "base/settings.hpp"
#include "os/setting_file.hpp"

namespace weft::fi {
namespace {

static_assert(retired::log_levels == FI_LOG_DEBUG + 1 && retired::log_subsystems == FI_LOG_CNTR + 1);

constexpr size_t kLineMax = 4096;

// What the environment said. Made once and after each log_reset, and lasting: a line may be written while the process ends, and another thread
// may still read what was there before the reset.
struct Settings {
  int level = FI_LOG_WARN;  // the most verbose one written; -1 writes nothing
  uint32_t subsystems = ~0u;
  std::string providers;  // a list as name_passes reads it
  uint64_t interval_ms = 2000;
};

std::atomic<const Settings*> settings_now{nullptr};
std::mutex settings_lock;
std::atomic<const char*> name_prefix{""};

// The functions of an imported logger. Null: our own does that part.
struct Imported {
  std::atomic<decltype(fi_ops_log::enabled)> enabled{nullptr};
  std::atomic<decltype(fi_ops_log::ready)> ready{nullptr};
  std::atomic<decltype(fi_ops_log::log)> log{nullptr};
};
Imported imported;

// Null: no level has that name or number.
std::optional<int> read_level(const char* text) {
  // Not in fabric(7): silence.
  if (strcasecmp(text, "none") == 0) return -1;
  for (int level = FI_LOG_WARN; level < retired::log_levels; ++level) {
    char name[32];
    if (strcasecmp(text, to_text(name, sizeof name, &level, FI_TYPE_LOG_LEVEL)) == 0) return level;
  }
  if (text[0] >= '0' && text[0] <= '9' && text[1] == 0)
    return std::min(text[0] - '0', retired::log_levels - 1);
  return std::nullopt;
}

int level_of(const char* text) {
  return text == nullptr ? FI_LOG_WARN : read_level(text).value_or(FI_LOG_WARN);
}

uint32_t subsystems_of(const char* text) {
  uint32_t mask = 0;
  for (int subsystem = 0; subsystem < retired::log_subsystems; ++subsystem) {
    char name[32];
    if (name_passes(text, to_text(name, sizeof name, &subsystem, FI_TYPE_LOG_SUBSYS)))
      mask |= 1u << subsystem;
  }
  // A list of nothing that there is would silence the warning about it, too.
  const bool all_but = text != nullptr && text[strspn(text, " ")] == '^';
  return mask == 0 && !all_but ? ~0u : mask;
}

const Settings* read_settings() noexcept {
  std::lock_guard guard(settings_lock);
  if (const Settings* there = settings_now.load(std::memory_order_acquire)) return there;
  try {
    Settings* made = &make_lasting<Settings>();
    made->level = level_of(os::setting("FI_LOG_LEVEL"));
    made->subsystems = subsystems_of(os::setting("FI_LOG_SUBSYS"));
    if (const char* providers = os::setting("FI_LOG_PROV")) made->providers = providers;
    const settings::Setting& limit = *settings::find("FI_LOG_INTERVAL");
    const char* interval = os::setting(limit.name.data());
    made->interval_ms =
        interval != nullptr ? settings::parse(limit, interval).value_or(limit.otherwise) : limit.otherwise;
    settings_now.store(made, std::memory_order_release);
    return made;
  } catch (...) {
    static const Settings plain;
    return &plain;
  }
}

const Settings& settings() noexcept {
  const Settings* there = settings_now.load(std::memory_order_acquire);
  return there != nullptr ? *there : *read_settings();
}

bool is_core(const char* provider) noexcept {
  return provider == nullptr || *provider == 0 || strcmp(provider, kCore) == 0;
}

// The name as it is written and filtered; `prefix` is that of our own providers.
struct FullName {
  FullName(const char* prefix, const char* provider) noexcept {
    if (is_core(provider)) snprintf(text, sizeof text, "%s", kCore);
    else snprintf(text, sizeof text, "%s%s", prefix, provider);
  }
  char text[FI_NAME_MAX];
};

bool provider_filtered(const Settings& now, const char* full_name) noexcept {
  return !now.providers.empty() && !is_core(full_name) && !name_passes(now.providers.c_str(), full_name);
}

// An imported logger is asked with the provider's structure; ours have none, so one is made for the call.
fi_provider structure_of(const char* full_name) noexcept {
  fi_provider provider{};
  provider.name = full_name;
  return provider;
}

bool enabled(const char* full_name, fi_log_level level, fi_log_subsys subsys) noexcept {
  const Settings& now = settings();
  if (const auto ask = imported.enabled.load(std::memory_order_acquire)) {
    const fi_provider provider = structure_of(full_name);
    const uint64_t flags = provider_filtered(now, full_name) ? FI_LOG_PROV_FILTERED : 0;
    return ask(&provider, level, subsys, flags) != 0;
  }
  if (static_cast<int>(level) > now.level) return false;
  if (static_cast<unsigned>(subsys) >= retired::log_subsystems || (now.subsystems >> subsys & 1) == 0)
    return false;
  return !provider_filtered(now, full_name);
}

const char* level_name(fi_log_level level, char (&buffer)[32]) noexcept {
  return to_text(buffer, sizeof buffer, &level, FI_TYPE_LOG_LEVEL);
}

// `function` may be null; then the line does not say where it comes from.
void write_line(const char* full_name, fi_log_level level, fi_log_subsys subsys, const char* function,
                int line, const char* format, va_list args) noexcept {
  const int errno_before = errno;
  char text[kLineMax];
  if (const auto write_imported = imported.log.load(std::memory_order_acquire)) {
    vsnprintf(text, sizeof text, format, args);
    const fi_provider provider = structure_of(full_name);
    write_imported(&provider, level, subsys, function != nullptr ? function : "", line, text);
    errno = errno_before;
    return;
  }
  char level_text[32];
  char subsys_text[32];
  to_text(subsys_text, sizeof subsys_text, &subsys, FI_TYPE_LOG_SUBSYS);
  const size_t room = sizeof text - 1;  // one byte for the line end
  auto used = static_cast<size_t>(std::max(
      0, snprintf(text, room, "weft:%ld:%s:%s:", static_cast<long>(getpid()), full_name, subsys_text)));
  if (function != nullptr && used < room)
    used += static_cast<size_t>(std::max(0, snprintf(text + used, room - used, "%s():%d", function, line)));
  if (used < room)
    used += static_cast<size_t>(
        std::max(0, snprintf(text + used, room - used, "<%s> ", level_name(level, level_text))));
  if (used < room)
    used += static_cast<size_t>(std::max(0, vsnprintf(text + used, room - used, format, args)));
  size_t length = std::min(used, room - 1);
  if (length == 0 || text[length - 1] != '\n') text[length++] = '\n';
  // Nobody can be told when standard error is gone.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, length);
  errno = errno_before;
}

void log_local(const char* provider, fi_log_level level, fi_log_subsys subsys, const char* format,
               va_list args) noexcept {
  const FullName name(name_prefix.load(std::memory_order_relaxed), provider);
  if (enabled(name.text, level, subsys)) write_line(name.text, level, subsys, nullptr, 0, format, args);
}

const char* name_of(const fi_provider* provider) noexcept {
  return provider != nullptr && provider->name != nullptr ? provider->name : kCore;
}

}  // namespace

bool log_enabled(fi_log_level level, fi_log_subsys subsys, const char* provider) noexcept {
  if (imported.enabled.load(std::memory_order_relaxed) == nullptr &&
      static_cast<int>(level) > settings().level)
    return false;
  return enabled(FullName(name_prefix.load(std::memory_order_relaxed), provider).text, level, subsys);
}

void log_warn(const char* provider, fi_log_subsys subsys, const char* format, ...) noexcept {
  va_list args;
  va_start(args, format);
  log_local(provider, FI_LOG_WARN, subsys, format, args);
  va_end(args);
}

void log_info(const char* provider, fi_log_subsys subsys, const char* format, ...) noexcept {
  if (imported.enabled.load(std::memory_order_relaxed) == nullptr && settings().level < FI_LOG_INFO) return;
  va_list args;
  va_start(args, format);
  log_local(provider, FI_LOG_INFO, subsys, format, args);
  va_end(args);
}

int log_enabled_c(const fi_provider* provider, fi_log_level level, fi_log_subsys subsys) noexcept {
  return enabled(name_of(provider), level, subsys) ? 1 : 0;
}

int log_ready_c(const fi_provider* provider, fi_log_level level, fi_log_subsys subsys,
                uint64_t* showtime) noexcept {
  if (const auto ask = imported.ready.load(std::memory_order_acquire)) {
    const uint64_t flags = provider_filtered(settings(), name_of(provider)) ? FI_LOG_PROV_FILTERED : 0;
    return ask(provider, level, subsys, flags, showtime);
  }
  if (!enabled(name_of(provider), level, subsys)) return 0;
  if (showtime == nullptr) return 1;
  using namespace std::chrono;
  const auto now =
      static_cast<uint64_t>(duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count());
  std::atomic_ref next(*showtime);
  uint64_t seen = next.load(std::memory_order_relaxed);
  // Of threads that come at the same time one writes.
  if (now < seen || !next.compare_exchange_strong(seen, now + settings().interval_ms)) return 0;
  return 1;
}

void log_c(const fi_provider* provider, fi_log_level level, fi_log_subsys subsys, const char* function,
           int line, const char* format, va_list args) noexcept {
  // The caller has asked fi_log_enabled; see fi_log.h.
  write_line(name_of(provider), level, subsys, function, line, format, args);
}

bool is_log_level(const char* text) noexcept { return read_level(text).has_value(); }

void log_name_prefix(const char* prefix) noexcept { name_prefix.store(prefix, std::memory_order_relaxed); }

void log_import(const fi_ops_log* ops) noexcept {
  static constexpr fi_ops_log ours{};
  const fi_ops_log& from = ops != nullptr ? *ops : ours;
  imported.enabled.store(from.enabled, std::memory_order_release);
  imported.ready.store(from.ready, std::memory_order_release);
  imported.log.store(from.log, std::memory_order_release);
}

void log_reset() noexcept {
  std::lock_guard guard(settings_lock);
  settings_now.store(nullptr, std::memory_order_release);
}

}  // namespace weft::fi
