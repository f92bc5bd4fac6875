// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The open fabrics and domains, in the order of their opening. Must not know what is inside them.
#include "api/libfabric/discovery/opened.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "base/lasting.hpp"

namespace weft::fi {
namespace {

struct Entry {
  const Provider* provider;
  std::string name;
  const fid* object;
  size_t fclass;
};

struct Opened {
  std::mutex lock;
  std::vector<Entry> entries;
};

Opened& opened() {
  static Opened& there = make_lasting<Opened>();  // objects are closed from destructors of programs
  return there;
}

void note(const Provider& provider, const char* name, const fid* object, size_t fclass) noexcept {
  try {
    std::lock_guard guard(opened().lock);
    opened().entries.push_back({&provider, name != nullptr ? name : "", object, fclass});
  } catch (...) {
    // fi_getinfo will not refer to it; nothing else depends on the list.
  }
}

const fid* first(const Provider& provider, const char* name, size_t fclass) noexcept {
  std::lock_guard guard(opened().lock);
  for (const Entry& entry : opened().entries) {
    if (entry.provider == &provider && entry.fclass == fclass && name != nullptr && entry.name == name)
      return entry.object;
  }
  return nullptr;
}

bool has(const Provider& provider, const char* name, const fid* object) noexcept {
  std::lock_guard guard(opened().lock);
  return std::any_of(opened().entries.begin(), opened().entries.end(), [&](const Entry& entry) {
    return entry.object == object && entry.provider == &provider && (name == nullptr || entry.name == name);
  });
}

}  // namespace

void note_opened(const Provider& provider, const char* name, fid_fabric* fabric) noexcept {
  note(provider, name, &fabric->fid, FI_CLASS_FABRIC);
}

void note_opened(const Provider& provider, const char* name, fid_domain* domain) noexcept {
  note(provider, name, &domain->fid, FI_CLASS_DOMAIN);
}

void forget_opened(const fid* object) noexcept {
  std::lock_guard guard(opened().lock);
  std::erase_if(opened().entries, [object](const Entry& entry) { return entry.object == object; });
}

// The object begins with its fid, so its address is the object's. See fabric.h, struct fid.
fid_fabric* first_fabric(const Provider& provider, const char* name) noexcept {
  return reinterpret_cast<fid_fabric*>(const_cast<fid*>(first(provider, name, FI_CLASS_FABRIC)));
}

fid_domain* first_domain(const Provider& provider, const char* name) noexcept {
  return reinterpret_cast<fid_domain*>(const_cast<fid*>(first(provider, name, FI_CLASS_DOMAIN)));
}

bool is_opened(const Provider& provider, const char* name, const fid_fabric* fabric) noexcept {
  return has(provider, name, &fabric->fid);
}

bool is_opened(const Provider& provider, const char* name, const fid_domain* domain) noexcept {
  return has(provider, name, &domain->fid);
}

}  // namespace weft::fi
