// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Settings, the list of open instances, and events on their way to the library.
#include "api/verbs/roce/instance.hpp"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>

#include "api/verbs/roce/objects.hpp"
#include "base/settings.hpp"
#include "os/mapping.hpp"

namespace weft::verbs::soft {
namespace {

const weft_verbs_services* the_services = nullptr;

// All that are open; made on first use and never destroyed, for programs that call from exit handlers.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Instance>> instances;
  std::vector<std::unique_ptr<Instance>> inherited;  // of a forked child: its parent's
};
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

// The progress thread, or another one, holds a lock for moments. Who calls exit(3) from a signal handler may hold it himself.
template <class Lock>
std::unique_lock<Lock> lock_at_exit(Lock& lock) noexcept {
  std::unique_lock held(lock, std::try_to_lock);
  for (int tries = 0; !held.owns_lock() && tries < 100; ++tries) {
    ::usleep(100);
    (void)held.try_lock();
  }
  return held;
}

// A program that ends without closing what it opened: an acknowledgement that waits for its next call leaves now.
[[gnu::destructor]] void flush_at_exit() noexcept {
  Registry& all = registry();
  const auto guard = lock_at_exit(all.mutex);
  if (!guard.owns_lock()) return;
  for (auto& [name, one] : all.instances)
    if (const auto lock = lock_at_exit(one->lock()); lock.owns_lock()) one->device().leave();
}

uint8_t mtu_code(size_t bytes) noexcept {
  uint8_t code = 5;
  while (code > 1 && (size_t{128} << code) > bytes) --code;
  return code;
}

// The largest path MTU whose packets leave the interface in one piece.
uint8_t active_mtu_of(const os::Interface& interface) {
  constexpr size_t headers = 80;  // of IPv6, UDP and the largest packet, as the kernel's driver counts them
  const bool is_known = interface.mtu_bytes != 0;
  const uint8_t own =
      is_known ? mtu_code(std::max<size_t>(interface.mtu_bytes, headers) - headers) : uint8_t{3};
  const uint64_t set = settings::number("WEFT_VERBS_MTU");
  if (set == 0) return own;
  const uint8_t wanted = mtu_code(set);
  const uint8_t used = is_known ? std::min(wanted, own) : wanted;
  if (const size_t bytes = size_t{128} << used; bytes != set)
    log(1,
        "WEFT_VERBS_MTU=" + std::to_string(set) + ": " + interface.name + " has " + std::to_string(bytes) +
            (used == wanted ? " (the MTUs of RDMA are 256, 512, 1024, 2048 and 4096)"
                            : " (its own MTU of " + std::to_string(interface.mtu_bytes) + " takes no more)"));
  return used;
}

void say(const void* note, const char* text) noexcept { log(note == nullptr ? 1 : 2, text); }

}  // namespace

const weft_verbs_services& services() noexcept { return *the_services; }
void set_services(const weft_verbs_services& services) noexcept { the_services = &services; }

void log(int level, const std::string& text) noexcept {
  if (the_services != nullptr) the_services->log(level, text.c_str());
}

int refuse(const Error& error) noexcept {
  log(2, error.why);
  return error.code;
}

// Locally administered, the same for all processes.
uint64_t guid_of(const Named& named) noexcept {
  uint64_t hash = os::SocketAddressHash{}(named.interface.ipv4 ? named.interface.ipv4 : named.interface.ipv6);
  for (const char c : named.name) hash = hash * 31 + static_cast<unsigned char>(c);
  hash = (hash & 0x00ffffff00ffffff) | 0x020000ff'00000000 | 0x00000000fe000000;
  return __builtin_bswap64(hash);
}

// A child that is forked finds no lock held by a thread that it does not have.
static void lock_all() noexcept {
  registry().mutex.lock();
  for (auto& [name, one] : registry().instances) {
    one->lock().lock();
    one->await_raised();  // no child finds a lock held by a thread that it does not have
  }
}
static void unlock_all() noexcept {
  for (auto& [name, one] : registry().instances) one->lock().unlock();
  registry().mutex.unlock();
}

void Instance::Close::operator()(Instance* instance) const noexcept {
  Registry& all = registry();
  const std::scoped_lock guard(all.mutex);
  if (--instance->users_ != 0) return;
  std::erase_if(all.inherited, [&](const auto& one) { return one.get() == instance; });
  if (const auto place = all.instances.find(instance->named_.name);
      place != all.instances.end() && place->second.get() == instance)
    all.instances.erase(place);
}

Result<Instance::Reference> Instance::open(const Named& named) {
  Registry& all = registry();
  const std::scoped_lock guard(all.mutex);
  [[maybe_unused]] static const int handled = ::pthread_atfork(lock_all, unlock_all, unlock_all);
  if (const auto place = all.instances.find(named.name); place != all.instances.end()) {
    if (place->second->device().is_here()) {
      ++place->second->users_;
      return Reference(place->second.get());
    }
    // A forked child opens its own: the sockets and the thread are its parent's.
    all.inherited.push_back(std::move(place->second));
    all.instances.erase(place);
  }
  std::unique_ptr<Instance> instance(new Instance(named));
  instance->active_mtu_ = active_mtu_of(named.interface);
  link::roce::DeviceSettings wanted;
  wanted.name = named.name;
  wanted.ipv4 = named.interface.ipv4;
  wanted.ipv6 = named.interface.ipv6;
  wanted.card = named.card;
  wanted.port = static_cast<uint16_t>(settings::number("WEFT_VERBS_PORT"));
  // Programs choose by themselves among GIDs (perftest prefers that of IPv4), and two of one host cannot both have it.
  // Where there is no GID 0, the standard one is better than none.
  wanted.has_standard = settings::flag("WEFT_VERBS_STANDARD_GID") ||
                        (!named.interface.ipv4 && !link::roce::gid_with_port(named.interface.ipv6));
  if (named.is_packet) {
    wanted.packet_interface = named.interface.name;
    wanted.network = named.network;
    wanted.packet_ring_bytes = static_cast<size_t>(settings::number("WEFT_VERBS_PACKET_RING")) << 10;
  }
  const char* progress_text = settings::text("WEFT_PROGRESS");
  const std::string_view progress = progress_text == nullptr ? "" : progress_text;
  wanted.has_thread = progress != "manual";
  wanted.has_shm = settings::flag("WEFT_VERBS_SHM");
  wanted.has_selective = settings::flag("WEFT_VERBS_SELECTIVE");
  wanted.datagram_bytes = size_t{128} << instance->active_mtu_;
  static constexpr int note = 0;
  wanted.audience = {say, nullptr, say, &note};
  wanted.after_unlock = instance.get();
  auto device = link::roce::Device::open(wanted, *instance);
  if (!device) return device.error();
  instance->device_ = std::move(*device);
  if (os::can_populate())
    instance->device_->adapter().memory().probe = [](std::byte* at, uint64_t length, bool write) noexcept {
      return os::populate(at, length, write) == 0;
    };
  Instance* const opened = instance.get();
  all.instances[named.name] = std::move(instance);
  return Reference(opened);
}

// By which way packets went, and what was lost on it, for WEFT_VERBS_LOG=info.
Instance::~Instance() {
  if (!device_ || !device_->is_here()) return;
  link::roce::DeviceCounters counters;
  link::roce::PortCounters ports;
  roce::AdapterCounters packets;
  {
    const std::scoped_lock guard(device_->lock());
    counters = device_->counters();
    ports = device_->ports().counters();
    packets = device_->adapter().counters();
  }
  const auto pair = [](uint64_t out, uint64_t in) {
    return std::to_string(out) + " out, " + std::to_string(in) + " in";
  };
  try {
    log(2, named_.name + ": packets by shared memory: " + pair(counters.shm.sent, counters.shm.received) +
               "; by UDP: " + pair(counters.sent_by_udp, counters.received_by_udp) +
               "; sent again: " + std::to_string(packets.sent_again) +
               "; received twice: " + std::to_string(packets.duplicates) +
               "; gaps: " + std::to_string(packets.gaps) + "; NAKs: RNR " + std::to_string(packets.naks.rnr) +
               ", sequence " + std::to_string(packets.naks.sequence) + ", invalid request " +
               std::to_string(packets.naks.request) + ", access " + std::to_string(packets.naks.access) +
               ", operation " + std::to_string(packets.naks.operation) +
               "; wrong ICRC: " + std::to_string(ports.wrong_icrc) +
               "; by a solved IP identification: " + std::to_string(ports.solved));
    std::string card;
    std::unique_lock guard(device_->lock());
    const auto socket = device_->ports().packet_socket_counters(device_->is_here());
    for (const proto::DeviceCounter& counter : device_->card_counters())
      card += (card.empty() ? "" : ", ") + counter.name + ' ' + std::to_string(counter.value);
    guard.unlock();
    if (socket.sockets != 0)
      log(2, named_.name + ": packet socket: " +
                 (socket.ring_slots == 0 ? std::string("no ring")
                                         : "a ring of " + std::to_string(socket.ring_slots) + " frames, " +
                                               std::to_string(socket.ring_bytes >> 10) + " KiB") +
                 "; frames lost for want of room: " + std::to_string(socket.lost) +
                 "; longer than the MTU: " + std::to_string(socket.cut));
    if (!card.empty()) log(2, named_.name + ": network card: " + card);
  } catch (...) {  // no memory for a sentence
  }
}

void Instance::on_completion(roce::CompletionQueue& cq) noexcept {
  auto* const shown = static_cast<ibv_cq*>(cq.context);
  if (!device_ || !device_->is_thread_at_work() || to_raise_count_ == to_raise_.size())
    return services().completion_event(shown);
  to_raise_[to_raise_count_++] = shown;
  is_raising_.store(true, std::memory_order_relaxed);
}

void Instance::after_unlock() noexcept {
  if (to_raise_count_ == 0) return;
  for (size_t i = 0; i < to_raise_count_; ++i) services().completion_event(to_raise_[i]);
  to_raise_count_ = 0;
  is_raising_.store(false, std::memory_order_release);
}

void Instance::await_raised() const noexcept {
  // A forked child does not have the thread.
  while (is_raising_.load(std::memory_order_acquire) && device_->is_here()) ::sched_yield();
}

void Instance::on_async(const roce::AsyncEvent& event) noexcept {
  ibv_async_event out{};
  out.event_type = static_cast<ibv_event_type>(event.kind);
  ibv_context* context = nullptr;
  if (event.qp != nullptr && event.qp->context != nullptr) {
    out.element.qp = static_cast<ibv_qp*>(event.qp->context);
    context = out.element.qp->context;
  } else if (event.cq != nullptr) {
    out.element.cq = static_cast<ibv_cq*>(event.cq->context);
    context = out.element.cq->context;
  } else if (event.srq != nullptr) {
    out.element.srq = static_cast<ibv_srq*>(event.srq->context);
    context = out.element.srq->context;
  }
  if (context != nullptr) services().async_event(context, &out);
}

}  // namespace weft::verbs::soft
