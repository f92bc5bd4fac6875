// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Names of this process, and of others through memory that they publish.
#include "api/libfabric/objects/named_av.hpp"

#include <rdma/fi_errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "api/libfabric/text/log.hpp"
#include "base/hash.hpp"
#include "base/lasting.hpp"
#include "os/published_memory.hpp"

namespace weft::fi {
namespace {

using core::AddressBoard;
using core::AddressVector;

// A table and the memory that it is written to or read from.
struct Shared {
  explicit Shared(int rx_ctx_bits) : table(rx_ctx_bits) {}
  // The mapping outlives the table that uses it.
  std::unique_ptr<os::PublishedMemory> published;
  os::FoundMemory found;
  AddressVector table;

  AddressBoard* board() const noexcept {
    return published != nullptr ? published->mapping().as<AddressBoard>() : found.mapping.as<AddressBoard>();
  }
};
using SharedPtr = std::shared_ptr<Shared>;

NamedTable table_of(const SharedPtr& shared) {
  AddressBoard* board = shared->board();
  return {{shared, &shared->table}, board != nullptr ? board->ids.data() : nullptr};
}

using Key = std::tuple<const Provider*, uint32_t, std::string>;

struct Registry {
  std::mutex mutex;
  std::map<Key, std::weak_ptr<Shared>> tables;
};
Registry& registry() {
  static Registry& instance = make_lasting<Registry>();
  return instance;
}

// Names of different users, providers, formats or programs do not meet, and nobody learns the name from it.
std::string prefix_of(const Domain& domain, const std::string& name) {
  uint64_t hash = ::geteuid();
  const auto add = [&](const std::string& text) {
    for (const char c : text) hash = hash_word(hash ^ static_cast<unsigned char>(c), hash_factor_a);
    hash = hash_word(hash + text.size(), hash_factor_b);
  };
  add(domain.provider->name);
  add(std::to_string(domain.addr_format));
  add(name);
  char text[40];
  std::snprintf(text, sizeof(text), "weft-av/%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// What a name could not be told from others by.
bool fits(const std::string& name) noexcept { return name.size() < sizeof(AddressBoard::name); }

bool is_board_of(const AddressBoard& board, const std::string& name) noexcept {
  return board.magic.load(std::memory_order_acquire) == AddressBoard::magic_value &&
         board.bytes == sizeof(AddressBoard) &&
         std::equal(name.c_str(), name.c_str() + name.size() + 1, board.name.begin());
}

// The vector of that name in another process.
os::FoundMemory find_elsewhere(const Domain& domain, const std::string& name) {
  if (!fits(name)) return {};
  for (os::FoundMemory& found : os::find_published_memory(prefix_of(domain, name), sizeof(AddressBoard)))
    if (is_board_of(*found.mapping.as<AddressBoard>(), name)) return std::move(found);
  return {};
}

Error other_bits(const std::string& name) {
  return {FI_EINVAL, "address vector " + name + " has other rx_ctx_bits"};
}

// Lets other processes read it. Who cannot has it for himself.
void publish(const Domain& domain, const std::string& name, Shared& shared) {
  const auto alone = [&](const std::string& why) {
    log_warn(domain.provider->name, FI_LOG_AV, "other processes cannot open the address vector %s: %s",
             name.c_str(), why.c_str());
  };
  if (!fits(name)) return alone("its name is too long");
  auto memory = os::PublishedMemory::create("weft-av", sizeof(AddressBoard));
  if (!memory) return alone(memory.error().why);
  auto* board = memory->mapping().as<AddressBoard>();
  board->bytes = sizeof(AddressBoard);
  board->rx_ctx_bits = shared.table.rx_ctx_bits();
  std::copy(name.begin(), name.end(), board->name.begin());
  board->magic.store(AddressBoard::magic_value, std::memory_order_release);
  if (auto ok = memory->publish(prefix_of(domain, name)); !ok) return alone(ok.error().why);
  shared.published = std::make_unique<os::PublishedMemory>(std::move(*memory));
  shared.table.publish(*board);
}

}  // namespace

Result<NamedTable> open_named_table(const Domain& domain, const fi_av_attr& attr) {
  const std::string name = attr.name;
  Registry& known = registry();
  std::scoped_lock guard(known.mutex);
  std::erase_if(known.tables, [](const auto& entry) { return entry.second.expired(); });
  const Key key{domain.provider, domain.addr_format, name};
  if (const auto place = known.tables.find(key); place != known.tables.end()) {
    if (const SharedPtr shared = place->second.lock()) {
      if (shared->table.rx_ctx_bits() != attr.rx_ctx_bits) return other_bits(name);
      return table_of(shared);
    }
  }
  // Two processes that make one name at once: the second finds the first.
  const os::Fd held = (attr.flags & FI_READ) == 0 ? os::hold_prefix(prefix_of(domain, name)) : os::Fd();
  os::FoundMemory elsewhere = find_elsewhere(domain, name);
  const auto* board = elsewhere.mapping.as<AddressBoard>();
  if ((attr.flags & FI_READ) == 0) {
    if (board != nullptr)
      return Error{FI_EACCES, "process " + std::to_string(elsewhere.pid) + " has the address vector " + name +
                                  "; other processes open it with FI_READ"};
    auto shared = std::make_shared<Shared>(attr.rx_ctx_bits);
    publish(domain, name, *shared);
    known.tables[key] = shared;
    return table_of(shared);
  }
  if (board == nullptr) return Error{FI_ENOENT, "nobody has an address vector " + name + " open"};
  if (board->rx_ctx_bits != attr.rx_ctx_bits) return other_bits(name);
  auto shared = std::make_shared<Shared>(attr.rx_ctx_bits);
  shared->found = std::move(elsewhere);
  shared->table.follow(*shared->board());
  return table_of(shared);
}

void own_after_fork(AddressVector& table) noexcept {
  if (!table.is_published()) return;
  Registry& known = registry();
  std::scoped_lock guard(known.mutex);
  for (auto& [key, entry] : known.tables) {
    const SharedPtr shared = entry.lock();
    if (shared != nullptr && &shared->table == &table && !shared->published->belongs_here())
      table.stop_publishing();
  }
}

}  // namespace weft::fi
