// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/verbs/library/providers.hpp"

#include <dlfcn.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>

#include "api/verbs/library/log.hpp"
#include "api/verbs/roce/provider.hpp"
#include "base/settings.hpp"

namespace weft::verbs {
namespace {

struct Registry {
  std::mutex lock;
  std::vector<std::unique_ptr<Provider>> all;
  std::once_flag loaded;
  // Held while a provider starts, which may register another.
  std::recursive_mutex starting;
};

// Never freed: providers may call while the process ends.
Registry& registry() {
  static auto* made = new Registry;
  return *made;
}

// Everything up to `close` is needed; `start` may be null.
bool complete(const weft_verbs_provider& calls) noexcept {
  return calls.name != nullptr && *calls.name != '\0' && calls.list_devices != nullptr &&
         calls.open != nullptr && calls.close != nullptr;
}

int add(const weft_verbs_provider& provider) {
  auto made = std::make_unique<Provider>();
  made->calls = {};
  std::memcpy(&made->calls, &provider, std::min(provider.size, sizeof made->calls));
  if (!complete(made->calls)) {
    log(Level::Warning, "a provider was refused: it has no name, list_devices, open or close");
    return EINVAL;
  }
  made->name = made->calls.name;
  Registry& known = registry();
  const std::lock_guard guard(known.lock);
  if (std::ranges::any_of(known.all, [&](const auto& other) { return other->name == made->name; })) {
    log(Level::Warning, "a provider was refused: there is one named %s already", made->name.c_str());
    return EEXIST;
  }
  known.all.push_back(std::move(made));
  return 0;
}

size_t count() {
  Registry& known = registry();
  const std::lock_guard guard(known.lock);
  return known.all.size();
}

void load(const std::string& path) {
  const size_t before = count();
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    const char* why = dlerror();
    log(Level::Warning, "WEFT_VERBS_PROVIDERS: %s", why != nullptr ? why : path.c_str());
  } else if (count() == before) {
    log(Level::Warning, "WEFT_VERBS_PROVIDERS: %s registered no provider (weft_verbs_register)",
        path.c_str());
  }
}

void load_all() {
  // Nobody loads code into a program of other rights (getauxval(3), AT_SECURE).
  const char* setting = getauxval(AT_SECURE) == 0 ? settings::text("WEFT_VERBS_PROVIDERS") : nullptr;
  std::string_view paths = setting != nullptr ? setting : "";
  while (!paths.empty()) {
    const std::string_view path = paths.substr(0, paths.find(':'));
    if (!path.empty()) load(std::string(path));
    paths.remove_prefix(std::min(paths.size(), path.size() + 1));
  }
  add(roce_provider());
}

// False: it does not take part.
bool started(Provider& provider) {
  const std::lock_guard guard(registry().starting);
  if (provider.state == Provider::State::New) {
    const int code = provider.calls.start != nullptr ? provider.calls.start(&services()) : 0;
    provider.state = code == 0 ? Provider::State::Started : Provider::State::LeftOut;
    if (code != 0)
      log(Level::Warning, "provider %s does not start: %s", provider.name.c_str(), strerror(code));
  }
  return provider.state == Provider::State::Started;
}

}  // namespace

int register_provider(const weft_verbs_provider* provider) noexcept {
  if (provider == nullptr) return EINVAL;
  try {
    return add(*provider);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

std::vector<const Provider*> providers() {
  Registry& known = registry();
  std::call_once(known.loaded, load_all);
  std::vector<Provider*> all;
  {
    const std::lock_guard guard(known.lock);
    for (const auto& provider : known.all) all.push_back(provider.get());
  }
  std::vector<const Provider*> found;
  const Provider* built_in = nullptr;
  for (Provider* provider : all) {
    if (!started(*provider)) continue;
    if (provider->calls.list_devices == roce_provider().list_devices) built_in = provider;
    else found.push_back(provider);
  }
  if (built_in != nullptr) found.push_back(built_in);
  return found;
}

}  // namespace weft::verbs
