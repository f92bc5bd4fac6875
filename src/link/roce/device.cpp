// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opening, and the progress thread.
#include "link/roce/device.hpp"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "arch/cpu.hpp"
#include "base/assert.hpp"
#include "link/nic/open.hpp"
#include "link/roce/capture.hpp"
#include "os/clock.hpp"
#include "os/shortage.hpp"

namespace weft::link::roce {

namespace {

// UINT64_MAX: for ever.
int wait_for(pollfd* fds, nfds_t count, uint64_t ns, const sigset_t* mask = nullptr) noexcept {
  const timespec timeout{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  return ::ppoll(fds, count, ns == UINT64_MAX ? nullptr : &timeout, mask);
}

// How many times longer than on the machine that the times of the progress thread were found on a system call takes here, or
// to go to sleep and wake up: emulated machines, kernels in user space. For the thread itself, which has slack for its
// timers meanwhile.
uint64_t scale_of(int fd) noexcept {
  constexpr uint64_t usual_call_ns = 400;
  constexpr uint64_t usual_sleep_ns = 6'000;
  constexpr uint64_t scale_least = 4;  // below that it is chance
  constexpr uint64_t scale_max = 32;
  const auto least_of = [fd](uint64_t sleep_ns) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 8; ++i) {
      pollfd one{fd, POLLIN, 0};
      const uint64_t before = os::monotonic_ns();
      (void)wait_for(&one, 1, sleep_ns);
      least = std::min(least, os::monotonic_ns() - before);
    }
    return least;
  };
  const uint64_t call = least_of(0);
  (void)::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  const uint64_t sleep = least_of(1);
  (void)::prctl(PR_SET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);  // the default one
  const uint64_t scale = std::max(call / usual_call_ns, sleep / usual_sleep_ns);
  return scale < scale_least ? 1 : std::min(scale, scale_max);
}

void warn(const DeviceSettings& settings, const char* what, const Result<void>& opened) {
  if (opened) return;
  const std::string why = std::string(what) + ": UDP port 4791: " + opened.error().why;
  if (settings.audience.warning != nullptr) settings.audience.warning(settings.audience.warned, why.c_str());
}

}  // namespace

Device::Device(proto::roce::Events& events) : adapter_(*this, events, os::random_bytes) {}

Result<std::unique_ptr<Device>> Device::open(const DeviceSettings& settings, proto::roce::Events& events) {
  std::unique_ptr<Device> device(new Device(events));
  device->adapter_.datagram_bytes_max = settings.datagram_bytes;
  device->policy_.settings.may_wait = settings.may_wait;
  device->after_unlock_ = settings.after_unlock;
  device->adapter_.is_weft_peer = has_port;
  device->adapter_.has_selective = settings.has_selective;
  if (auto ok = device->open_ports(settings); !ok) return ok.error();
  if (device->card_) {
    device->card_->ring();  // who has the address was announced
    device->card_->set_rung_by_owner(true);
  }
  device->shown_.emplace(settings.name, device->ports_.addresses(), settings.audience);
  device->adapter_.observe(&*device->shown_);
  if (settings.has_thread) {
    // Made when it is asked for; a thread that cannot sleep on its sockets would hear nothing.
    for (auto& port : device->ports_)
      if (port && port->link().wait_fd() < 0) {
        const int code = errno;
        return Error{code, "nothing to sleep on the socket by: epoll: " + os::with_remedy(code)};
      }
    auto wake = os::Event::create();
    if (!wake) return wake.error();
    device->wake_.emplace(std::move(*wake));
    device->policy_.settings.has_thread = true;
    const auto run = [](void* self) { static_cast<Device*>(self)->run(); };
    if (!device->thread_.start("weft-roce", run, device.get()))
      return Error{EAGAIN, "the system gives no thread for the progress of one-sided operations"};
  }
  return device;
}

Device::~Device() {
  stop_.store(true, std::memory_order_relaxed);
  if (wake_) wake_->notify();
  thread_.join();
  flush_deferred();
  if (shown_) show(0);
  adapter_.observe(nullptr);
  if (shm_) shm_->close();
  ports_.close();
  if (card_) card_->close();
}

Result<void> Device::open_card(const DeviceSettings& settings) {
  auto card = nic::open_card(settings.card->card);
  if (!card) return card.error();
  card_ = std::make_unique<nic::Device>();
  card_->set_warning(settings.audience.warning, settings.audience.warned);
  return card_->open(std::move(*card), *settings.card);
}

void* Device::map(void* memory, size_t bytes) noexcept {
  if (!card_ || bytes == 0) return nullptr;
  const iovec piece{memory, bytes};
  core::Registration region;
  region.pieces = {&piece, 1};
  region.rights.local_read = true;
  core::Registered out;
  return card_->add(region, out) == 0 ? out.handle : nullptr;
}

void Device::unmap(void* mapping) noexcept {
  if (card_ && mapping != nullptr) (void)card_->remove({}, mapping);
}

Result<void> Device::open_port(size_t index, os::SocketAddress address, uint16_t port,
                               const DeviceSettings& settings) {
  address.set_port(port);
  ports_[index].emplace(adapter_);
  ports_[index]->set_heeds_congestion(settings.heeds_congestion);
  if (card_) ports_[index]->link().choose<Carrier::Card>().set_device(*card_);
  if (!settings.packet_interface.empty()) {
    auto& raw = ports_[index]->link().choose<Carrier::RawSocket>();
    raw.frames().set_interface(settings.packet_interface);
    raw.frames().set_ring_bytes(settings.packet_ring_bytes);
    raw.set_network(settings.network);
  }
  auto opened = ports_[index]->open(address, [&](Socket& link, std::span<const std::byte> at) {
    auto ok = packet::open_observed(link, at, settings.audience);
    if (auto* observer = link.observer(); ok && observer != nullptr && observer->capture != nullptr)
      observer->capture = std::make_unique<RoceCapture>(std::move(observer->capture));
    return ok;
  });
  if (!opened) {
    ports_[index].reset();
  } else {
    if (os::PacketSocket* const socket = ports_[index]->link().packet_socket(); socket != nullptr) {
      policy_.settings.one_by_one = true;
      ports_.set_glances(socket->has_ring());
      if (const auto& audience = settings.audience;
          !socket->why_no_ring().empty() && audience.note != nullptr)
        audience.note(audience.noted,
                      (socket->why_no_ring() + ", so frames are received by system calls").c_str());
    }
    if (index == 0) adapter_.unreliable_room_bytes = ports_[index]->link().receive_buffer_bytes();
    adapter_.names.push_back(gid_with_port(ports_[index]->address()).value_or(ports_[index]->gid()));
  }
  return opened;
}

// Who cannot have it has UDP.
void Device::open_shm(const DeviceSettings& settings) {
  if (!settings.has_shm || !ports_[0] || ports_[0]->gid() != gid_with_port(ports_[0]->address())) return;
  // Faults are for what goes over networks: a test that asks for them gets them all.
  const proto::PacketObserver* observer = ports_[0]->link().observer();
  if (observer != nullptr && observer->faults) return;
  shm_.emplace(adapter_);
  auto opened = shm_->open(ports_[0]->address(), observer == nullptr ? nullptr : observer->capture.get(),
                           settings.audience);
  if (opened) return;
  shm_.reset();
  const auto& audience = settings.audience;
  const std::string why = "no shared memory to devices of this host: " + opened.error().why;
  if (audience.note != nullptr) audience.note(audience.noted, why.c_str());
}

Result<void> Device::open_ports(const DeviceSettings& settings) {
  if (settings.card) {
    if (auto ok = open_card(settings); !ok) return ok;
    const os::SocketAddress& own = settings.card->address;
    return open_port(own.family() == AF_INET ? 1 : 2, own, standard_port, settings);
  }
  if (!settings.packet_interface.empty()) {
    if (settings.ipv4)
      if (auto ok = open_port(1, settings.ipv4, standard_port, settings); !ok) return ok;
    if (settings.ipv6)
      if (auto ok = open_port(2, settings.ipv6, standard_port, settings); !ok) return ok;
    return {};
  }
  // GID 0 names the process's own UDP port, with the IPv4 address or else with the link-local one.
  const bool is_link_local = !settings.ipv4 && gid_with_port(settings.ipv6);
  if (settings.ipv4 || is_link_local)
    if (auto ok = open_port(0, is_link_local ? settings.ipv6 : settings.ipv4, settings.port, settings); !ok)
      return ok;
  int code = EADDRNOTAVAIL;
  if (settings.has_standard) {
    // Another process may have them, or the kernel's own driver.
    const auto open_standard = [&](size_t index, const os::SocketAddress& address, const char* lack) {
      const auto opened = open_port(index, address, standard_port, settings);
      if (!opened) code = opened.error().code;
      warn(settings, lack, opened);
    };
    if (settings.ipv4 && settings.port != standard_port)
      open_standard(1, settings.ipv4, "GID 1 is not there");
    // Programs prefer IPv4 to a link-local address, which no other link reaches.
    if (settings.ipv6 && (!settings.ipv4 || !settings.ipv6.is_link_local()) &&
        !(is_link_local && settings.port == standard_port))
      open_standard(2, settings.ipv6, "GID 2 is not there");
  }
  if (std::ranges::none_of(ports_, [](const auto& port) { return port.has_value(); }))
    return Error{code, code == EADDRINUSE ? "no port: over IPv6 only 4791 serves, and another process has it"
                                          : "no port: no address of the interface could be bound"};
  open_shm(settings);
  return {};
}

Gid Device::gid(size_t index) const noexcept { return ports_.has(index) ? ports_[index]->gid() : Gid{}; }

uint16_t Device::port_of(size_t index) const noexcept {
  return ports_.has(index) ? ports_[index]->address().port() : uint16_t{0};
}

uint8_t Device::path_mtu_max(size_t index, const Gid& to) noexcept {
  if (!ports_.has(index)) return 0;
  if (address_of(to).family() != ports_[index]->address().family()) return 0;
  return ports_[index]->path_mtu_max(to);
}

void Device::expect(const proto::roce::AddressVector& peer) noexcept {
  if (shm_ && peer.source_index == 0) shm_->expect(peer.destination, clock_.now());
}

bool Device::send(const proto::roce::AddressVector& to, const iovec* parts, size_t count) noexcept {
  if (!ports_.has(to.source_index)) return true;  // there is no way
  if (shm_ && to.source_index == 0) {
    shm_->set_vector(to);
    auto sent = shm_->send(to.destination, parts, count, ports_[0]->has_unsent());
    // A stream never pauses for the ring to begin, so what waits for UDP is sent now.
    if (sent == ShmPort::Sent::AfterUdp) [[unlikely]]
      sent = ports_[0]->flush() ? shm_->send(to.destination, parts, count) : ShmPort::Sent::NoRoom;
    if (sent == ShmPort::Sent::Taken) return true;
    if (sent == ShmPort::Sent::NoRoom) return false;
  }
  if (!ports_[to.source_index]->send(to, parts, count)) return false;
  ++counters_.sent_by_udp;
  return true;
}

// UDP has none: what the ring does not take is lost.
bool Device::send_aggregate(const proto::roce::AddressVector& to, const iovec* parts, size_t count,
                            uint32_t psns) noexcept {
  WEFT_ASSERT(shm_ && to.source_index == 0);
  shm_->set_vector(to);
  return shm_->send(to.destination, parts, count, false, psns) != ShmPort::Sent::NoRoom;
}

DeviceCounters Device::counters() const noexcept {
  DeviceCounters all = counters_;
  if (shm_) all.shm = shm_->counters();
  return all;
}

int Device::receive_from_sockets(uint64_t now) noexcept {
  const int packets = ports_.poll(now);
  counters_.received_by_udp += static_cast<uint64_t>(packets);
  policy_.sockets_polled(now, packets, shm_ && shm_->has_rings());
  return packets;
}

void Device::empty_sockets(uint64_t now) noexcept {
  constexpr int rounds = 64;
  for (int i = 0; i < rounds && receive_from_sockets(now) != 0; ++i) {
  }
}

void Device::show(uint64_t now) noexcept {
  policy_.shown(now);
  shown_packets_ = adapter_.counters().sent + adapter_.counters().received;
  shown_->show(adapter_.counters(), counters(), ports_.counters(),
               ports_.packet_socket_counters(origin_.is_here()).lost);
  adapter_.for_each_qp([&](const proto::roce::QueuePair& qp) {
    shown_->show(qp, shm_ && shm_->reaches(qp.attributes.path.destination));
  });
}

int Device::receive(uint64_t now) noexcept {
  int packets = 0;
  if (shm_) {
    if (shm_->is_due(now)) shm_->run_housekeeping(now);
    packets = shm_->poll(now, [&] { empty_sockets(now); });
  }
  if (policy_.is_due<Timer::Sockets>(now)) packets += receive_from_sockets(now);
  return packets;
}

void Device::answer(uint64_t now, int packets) noexcept {
  policy_.released();
  if (packets == 0 || ProgressPolicy::is_overdue(now, adapter_.next_due())) {
    adapter_.flush(now);
  } else {
    adapter_.serve_ready(now);
  }
  flush_ports();
  if (policy_.is_due<Timer::Statistics>(now)) [[unlikely]]
    show(now);
}

void Device::send_late() noexcept {
  policy_.released();
  if (!origin_.is_here()) return;
  adapter_.serve_ready(clock_.now());
  flush_ports();
}

void Device::leave() noexcept {
  if (!origin_.is_here()) return;
  if (policy_.defers_acknowledgement() && adapter_.owes_acknowledgement_alone()) {
    send_late();
  } else if (policy_.batches()) {
    flush_ports();
  }
}

void Device::await_acknowledgements(const proto::roce::QueuePair& qp) noexcept {
  if (!origin_.is_here()) return;
  flush_deferred();
  const uint32_t end = adapter_.end_of_sent(qp);
  if (!adapter_.awaits_before(qp, end)) return;
  const auto take_all = [&] {
    constexpr int rounds = 64;
    policy_.rest_sockets(0);
    for (int i = 0; i < rounds && poll_packets(clock_.now()) != 0; ++i) {
    }
  };
  take_all();
  uint64_t now = clock_.now();
  if (now - in_vain_at_ > ack_wait_reset_ns) ack_wait_ns_ = ack_wait_ns_max;
  const uint64_t until = now + policy_.scaled(ack_wait_ns_);
  while (adapter_.awaits_before(qp, end)) {
    if (shm_ && shm_->has_lost(qp.attributes.path.destination)) return;  // there will be none
    if (now >= until) {
      ack_wait_ns_ /= 2;
      in_vain_at_ = now;
      return;
    }
    lock_.unlock();
    (void)wait_for(nullptr, 0, ack_wait_slice_ns);
    lock_.lock();
    take_all();
    now = clock_.now();
  }
  ack_wait_ns_ = ack_wait_ns_max;
}

void Device::flush_ports() noexcept {
  ports_.flush();
  if (card_) card_->ring();
}

int Device::poll() noexcept {
  if (!origin_.is_here()) [[unlikely]]
    return 0;
  policy_.poll_begins();
  if (policy_.batches()) send_late();
  // Sockets that have been quiet are polled now and then, so the rings are all that has to be; and these can be polled
  // without the time.
  if (policy_.rests_sockets() && policy_.may_poll_in_vain() && !shm_->has_packets() && !has_unsent()) {
    policy_.polled_in_vain();
    return 0;
  }
  if (ports_.glances() && policy_.may_poll_in_vain() && ports_.has_nothing() &&
      !policy_.defers_acknowledgement() && !has_unsent()) {
    policy_.polled_in_vain();
    return 0;
  }
  const uint64_t now = clock_.now();
  policy_.takes(now);
  const uint64_t by_udp = counters_.received_by_udp;
  const uint64_t one_sided = adapter_.counters().one_sided;
  const int packets = receive(now);
  const ProgressPolicy::Taken taken{packets, counters_.received_by_udp != by_udp,
                                    adapter_.counters().one_sided != one_sided};
  const auto then = policy_.took(now, taken, adapter_);
  if (then == ProgressPolicy::Answer::WakeAndSend) [[unlikely]]
    wake_thread();
  if (then != ProgressPolicy::Answer::Wait) answer(now, packets);
  counters_.packets_by_program += static_cast<uint64_t>(packets);
  if (policy_.is_before_thread(adapter_.next_due())) wake_for_timer(now);
  return packets;
}

// --- the progress thread ---

void Device::wake_thread() noexcept {
  policy_.thread_notified();
  if (wake_ && origin_.is_here()) wake_->notify();
}

[[gnu::noinline]] void Device::wake_for_timer(uint64_t now) noexcept {
  if (policy_.wakes_for_timer(now, adapter_)) wake_thread();
}

void Device::step_aside() noexcept {
  policy_.stand_aside();
  if (shm_) shm_->relax();
  for (auto& port : ports_)
    if (port) port->link().disarm();
}

void Device::run() noexcept {
  const uint64_t scale = scale_of(wake_->fd());
  std::unique_lock guard(lock_);
  policy_.set_scale(scale);
  while (!stop_.load(std::memory_order_relaxed)) {
    guard.release();  // sleep() gives it back and takes it
    const bool sockets_ready = sleep();
    guard = std::unique_lock(lock_, std::adopt_lock);
    thread_works_ = true;
    if (policy_.stands_aside()) {
      check();
    } else {
      const uint64_t packets = counters_.packets_by_thread;
      work(sockets_ready);
      if (!policy_.stands_aside() && counters_.packets_by_thread != packets) spin_for_sleeper();
    }
    thread_works_ = false;
  }
}

// The program sleeps until an event in poll(2), or in several threads: what it sends is answered before this thread would be asleep. Each look
// is followed by a yield: the thread that the event has woken may wait for this CPU.
void Device::spin_for_sleeper() noexcept {
  if (!policy_.expects_sleeper() || !thread_spins_.may_spin()) return;
  bool found = false;
  uint64_t now = clock_.now();
  const uint64_t end = now + spin_ns_max;
  for (uint64_t until = now + SpinPolicy::spin_ns; now < until; now = clock_.now()) {
    let_others(true);
    if (!policy_.spins_for_sleeper() || stop_.load(std::memory_order_relaxed)) break;
    now = clock_.now();
    if (const int packets = poll_packets(now); packets != 0) {
      counters_.packets_by_thread += static_cast<uint64_t>(packets);
      until = std::min(now + SpinPolicy::spin_ns, end);
      found = true;
    }
  }
  thread_spins_.ended(found);
}

// For the program's threads, and for those that are to be woken.
void Device::let_others(bool yields) noexcept {
  thread_works_ = false;
  lock_.unlock();
  if (after_unlock_ != nullptr) after_unlock_->after_unlock();
  if (yields) ::sched_yield();
  lock_.lock();
  thread_works_ = true;
}

bool Device::arm(Descriptors& on) noexcept {
  bool may_sleep = true;
  for (auto& port : ports_) {
    if (!port) continue;
    on.add(port->link().wait_fd());
    may_sleep = port->link().arm() && may_sleep;
  }
  if (!shm_) return may_sleep;
  on.shm = on.count;
  on.add(shm_->wait_fd());
  return shm_->arm() && may_sleep;
}

void Device::disarm(const Descriptors& on) noexcept {
  if (!shm_ || on.shm == 0) return;
  shm_->disarm();
  if (on.fds[on.shm].revents != 0) shm_->housekeep_soon();
}

ProgressPolicy::Armed Device::armed(bool may_sleep) const noexcept {
  return {may_sleep, !may_sleep && shm_ && shm_->has_packets(), shm_ ? shm_->next_due() : UINT64_MAX};
}

bool Device::sleep() noexcept {
  Descriptors on;
  on.add(wake_->fd());
  const uint64_t now = clock_.now();
  const bool has_news = adapter_.counters().sent + adapter_.counters().received != shown_packets_;
  ProgressPolicy::Sleep sleep = policy_.plan_sleep(now, adapter_, has_unsent(), has_news);
  policy_.falls_asleep(sleep, now, armed(!sleep.arms || arm(on)));
  lock_.unlock();
  if (after_unlock_ != nullptr) after_unlock_->after_unlock();
  const uint64_t until = sleep.until;
  int ready = wait_for(on.fds.data(), on.count, until == UINT64_MAX ? until : until > now ? until - now : 0);
  while (ready == 0 && skips_checks()) ready = wait_for(on.fds.data(), 1, policy_.check_ns());
  lock_.lock();
  policy_.woke();
  ++counters_.wakes;
  if (!policy_.has_sleeper()) disarm(on);
  if (shm_ && (!policy_.stands_aside() || shm_->next_due() <= clock_.now())) shm_->housekeep_soon();
  if (ready > 0 && on.fds[0].revents != 0) wake_->drain();
  return ready > 0 && (ready > 1 || on.fds[0].revents == 0);
}

// --- a thread of the program that sleeps ---

// Looks for packets before the thread sleeps (SpinPolicy), unless another thread polls. True: has_event(of). Gives the lock back between two
// looks.
bool Device::spin(int (*has_event)(void* of), void* of) noexcept {
  constexpr int pauses = 8;  // in which another thread gets the lock
  bool found = false;
  uint64_t now = clock_.now();
  const uint64_t end = now + spin_ns_max;
  const uint64_t polled_at = policy_.polled_at();
  for (uint64_t until = now + SpinPolicy::spin_ns; now < until && policy_.polled_at() == polled_at;
       now = clock_.now()) {
    policy_.program_checks(now);
    if (const int packets = poll_packets(now); packets != 0) {
      counters_.packets_by_program += static_cast<uint64_t>(packets);
      until = std::min(now + SpinPolicy::spin_ns, end);
      found = has_event(of) != 0;
    }
    if (found) break;
    lock_.unlock();
    for (int i = 0; i < pauses; ++i) arch::pause();
    lock_.lock();
  }
  found = found || has_event(of) != 0;
  spins_.ended(found);
  return found;
}

// The progress thread, or another thread of the program, makes the event.
Device::Slept Device::await(int fd, const sigset_t* mask) noexcept {
  pollfd one{fd, POLLIN, 0};
  policy_.count_waiter(true);
  lock_.unlock();
  const int ready = wait_for(&one, 1, UINT64_MAX, mask);
  const int code = errno;
  lock_.lock();
  policy_.count_waiter(false);
  return ready < 0 && code == EINTR ? Slept::Interrupted : Slept::Over;
}

Device::Slept Device::sleep_instead(int fd, int (*has_event)(void* of), void* of, const void* thread,
                                    const sigset_t* mask) noexcept {
  if (!origin_.is_here() || !thread_.running() || card_) return Slept::Refused;
  policy_.forget(thread);
  if (policy_.has_sleeper() || adapter_.is_armed_by_other(thread)) {
    if (policy_.waiter_begins()) wake_thread();
    return await(fd, mask);
  }
  ProgressPolicy::ProgramSleep sleep{thread};
  flush_deferred();
  if (policy_.program_sleep_begins(sleep)) wake_thread();
  Slept slept = Slept::Over;
  while (has_event(of) == 0 && !sleep.is_vain()) {
    sleep.polled_at = policy_.polled_at();
    if (spins_.may_spin() && spin(has_event, of)) break;
    Descriptors on;
    on.add(fd);
    const ProgressPolicy::Armed is_armed = armed(arm(on));  // makes system calls: the time is taken behind it
    const ProgressPolicy::ProgramPlan plan =
        policy_.program_plans(clock_.now(), adapter_, is_armed, has_unsent());
    if (plan.wakes_thread) wake_thread();
    lock_.unlock();
    const int ready = wait_for(on.fds.data(), on.count, plan.limit_ns, mask);
    int code = ready < 0 ? errno : 0;
    lock_.lock();
    if (!origin_.is_here()) return Slept::Refused;         // the child of a fork(2) in a signal handler
    if (!policy_.is_sleeping(thread)) return Slept::Over;  // a call in a signal handler
    if (ready <= 0)
      for (pollfd& one : on.fds) one.revents = 0;
    disarm(on);
    bool sockets_ready = !shm_ || !shm_->has_rings();
    for (nfds_t i = 1; i < (shm_ ? on.shm : on.count); ++i) sockets_ready |= on.fds[i].revents != 0;
    policy_.rest_sockets(sockets_ready ? 0 : clock_.now() + ProgressPolicy::quiet_ns);
    constexpr int rounds = 64;
    for (int i = 0; i < rounds; ++i) {
      const uint64_t now = clock_.now();
      policy_.program_checks(now);
      const int packets = poll_packets(now);
      counters_.packets_by_program += static_cast<uint64_t>(packets);
      if (packets == 0 || has_event(of) != 0) break;
      lock_.unlock();  // for the other threads
      lock_.lock();
    }
    if (on.fds[0].revents != 0 || has_event(of) != 0) break;
    if (mask != nullptr && ready > 0) {  // ppoll(2) delivers no signal then
      lock_.unlock();
      if (wait_for(nullptr, 0, 0, mask) < 0) code = errno;
      lock_.lock();
      if (!origin_.is_here()) return Slept::Refused;
      if (!policy_.is_sleeping(thread)) return Slept::Over;
    }
    if (code == EINTR) {
      slept = Slept::Interrupted;
      break;
    }
    sleep.woke(policy_.polled_at());
  }
  if (shm_) shm_->disarm();
  if (policy_.program_sleep_ends(sleep, clock_.now(), adapter_.is_armed_by_other(thread))) wake_thread();
  if (!sleep.is_vain()) return slept;
  return has_event(of) != 0 ? Slept::Over : await(fd, mask);
}

bool Device::skips_checks() noexcept {
  if (!policy_.may_skip_checks() || stop_.load(std::memory_order_relaxed)) return false;
  return policy_.skips_checks(os::monotonic_ns());
}

void Device::work(bool sockets_ready) noexcept {
  for (ProgressPolicy::Turn turn; !policy_.has_sleeper();) {
    if (!policy_.turn_begins(turn, clock_.now(), sockets_ready)) return step_aside();
    const uint64_t sent = adapter_.counters().sent;
    const uint64_t one_sided = adapter_.counters().one_sided;
    turn.packets = receive(turn.now);
    turn.is_one_sided = adapter_.counters().one_sided != one_sided;
    counters_.packets_by_thread += static_cast<uint64_t>(turn.packets);
    if (policy_.leaves_to_program(turn, adapter_)) return;
    answer(turn.now, turn.packets);
    // One turn of sending is bounded; where it sent nothing the sockets are full.
    if (!policy_.goes_on(turn, adapter_.has_ready() && adapter_.counters().sent != sent)) return;
    let_others();
    if (stop_.load(std::memory_order_relaxed)) return;
  }
}

void Device::check() noexcept {
  const uint64_t now = clock_.now();
  if (policy_.has_sleeper()) {
    if (policy_.checks_beside_sleeper(now, adapter_.next_due(), has_unsent()) || (shm_ && shm_->is_due(now)))
      counters_.packets_by_thread += static_cast<uint64_t>(poll_packets(now));
    return;
  }
  switch (policy_.check(now)) {
    case ProgressPolicy::Check::Nothing:
      return;
    case ProgressPolicy::Check::Send:
      return send_late();
    case ProgressPolicy::Check::Take:
      break;
  }
  const uint64_t one_sided = adapter_.counters().one_sided;
  const int packets = poll_packets(now);
  counters_.packets_by_thread += static_cast<uint64_t>(packets);
  policy_.checked(now, packets, adapter_.counters().one_sided != one_sided);
}

}  // namespace weft::link::roce
