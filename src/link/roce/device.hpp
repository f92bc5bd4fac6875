// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Device: RoCEv2 in software for one process, over the sockets of one network interface: an adapter, its ports, the
// lock around them and a progress thread. docs/verbs.md has addresses and the thread's states. Must not know the
// program's interface.
//
// Threads: whoever calls adapter(), poll() or posted() holds lock(). Events are raised under it, from the program's
// threads and from the progress thread.
#pragma once

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "link/packet/middleware.hpp"
#include "link/roce/groups.hpp"
#include "link/roce/ports.hpp"
#include "link/roce/progress_policy.hpp"
#include "link/roce/shm_port.hpp"
#include "link/roce/shown.hpp"
#include "link/roce/spin_policy.hpp"
#include "os/event.hpp"
#include "os/lock.hpp"
#include "os/origin.hpp"
#include "os/thread.hpp"
#include "os/tick_clock.hpp"
#include "proto/roce/adapter.hpp"

namespace weft::link::roce {

// The progress thread calls it when it has given the device's lock back, so that a program that it wakes finds the lock free.
struct AfterUnlock {
  virtual void after_unlock() noexcept = 0;

 protected:
  ~AfterUnlock() = default;
};

struct DeviceSettings {
  std::string name = "roce";  // in the statistics page
  os::SocketAddress ipv4;     // of the interface; either may be missing
  os::SocketAddress ipv6;
  uint16_t port = 0;             // of GID 0; 0: the system chooses
  bool has_standard = true;      // GIDs 1 and 2: port 4791, where nobody else has it
  bool has_thread = true;        // false: progress is made by the program's calls alone
  bool has_shm = true;           // shared memory to devices of this host and user, by GID 0
  bool has_selective = true;     // selective repeat with peers that are known by a GID of ours
  bool heeds_congestion = true;  // false: nothing but UD is sent, and its packets are not capable of ECN
  bool may_wait =
      true;  // what is small may wait for the program's next call; leave() before the process ends
  size_t datagram_bytes = 1024;  // of UD: the path MTU of the interface
  // Not empty: no UDP sockets, but a packet socket on this interface for each address, which no interface has
  // (link/ethernet/packet_socket.hpp). GIDs 1 and 2 only: the standard ones.
  std::string packet_interface;
  ethernet::Network network;     // of these
  size_t packet_ring_bytes = 0;  // of each packet socket's ring for what it receives; 0: none
  // Set: no UDP sockets, but a port of a network card that this process drives, at the card's address. GID 1 or 2: the
  // standard ones.
  std::optional<nic::Configuration> card;
  packet::Audience audience;
  AfterUnlock* after_unlock = nullptr;  // outlives the device
};

struct DeviceCounters {
  uint64_t packets_by_thread = 0;
  uint64_t packets_by_program = 0;
  uint64_t wakes = 0;  // of the thread
  uint64_t sent_by_udp = 0;
  uint64_t received_by_udp = 0;
  ShmCounters shm;  // shared memory
};

// What it has itself: opening; the lock; sending and receiving by ports and by shared memory; the progress thread, and threads of the program that
// sleep in its place; waiting for acknowledgements before a flush; the statistics page. The schedule is ProgressPolicy's, the sockets are those of
// Ports, multicast is Groups. 60 functions and 21 members; 79 and 56 when these three were part of it.
class Device final : proto::roce::PacketOutput {
 public:
  using Socket = Ports::Socket;
  static constexpr size_t gid_count = Ports::count;

  // `events` outlives the device.
  static Result<std::unique_ptr<Device>> open(const DeviceSettings& settings, proto::roce::Events& events);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();  // without the lock

  os::Lock& lock() noexcept { return lock_; }
  bool is_here() const noexcept { return origin_.is_here(); }  // false: in a forked child

  // --- without the lock --- fixed from open() on
  Gid gid(size_t index) const noexcept;  // zeros: there is none
  uint16_t port_of(size_t index) const noexcept;

  // --- with the lock ---
  proto::roce::Adapter& adapter() noexcept { return adapter_; }
  // The largest Attributes::path_mtu to that peer; 0: there is no way.
  uint8_t path_mtu_max(size_t index, const Gid& to) noexcept;
  // A queue pair was connected to that peer: shared memory to it is prepared, so that not even the first packets need UDP.
  void expect(const proto::roce::AddressVector& peer) noexcept;
  Ports& ports() noexcept { return ports_; }
  Groups& groups() noexcept { return groups_; }
  // For the calls of adapter(): the time of one clock.
  uint64_t now() noexcept { return clock_.now(); }
  // For a thread of the program whose queue is empty: takes what came, sends what is due. Returns how many packets.
  // An acknowledgement waits for the next call that posts or finds the queue empty, so that it leaves in the system call of
  // what the program sends because of the message. It waits over UDP, and after one-sided operations over shared memory as
  // well, while the progress thread stands aside or wakes within check_ns_max, which is no more than half of the timeout.
  int poll() noexcept;
  // The progress thread leaves packets to the program, which polls.
  bool stands_aside() const noexcept { return policy_.stands_aside(); }
  // The call comes from the progress thread: AfterUnlock::after_unlock() follows.
  bool is_thread_at_work() const noexcept { return thread_works_ && after_unlock_ != nullptr; }
  // The process ends: what waits leaves, but nothing else, whose memory may be gone.
  void leave() noexcept;
  // Sends what waits for the program's next call: there may be none, or queue pairs and regions change.
  void flush_deferred() noexcept {
    if (policy_.holds_packets()) [[unlikely]]
      send_late();
  }
  // Before the send queue of a queue pair is flushed (ibv_modify_qp(3) to ERR): takes what has arrived, and waits for the
  // acknowledgements of requests that were sent. The peer may have consumed them, and told its program, whose next call or
  // progress thread sends the acknowledgement. At most ack_wait_ns_max, half as long after each wait that times out, so that many
  // queue pairs of a peer that has gone do not add up. Gives the lock back while it waits.
  void await_acknowledgements(const proto::roce::QueuePair& qp) noexcept;
  // For one whose queue was not: it polls all the same. One of polled_per_poll takes what came as well: a program may find a completion at each
  // call.
  void polled() noexcept {
    if (policy_.poll_finds_completion()) [[unlikely]] {
      (void)poll();
      return;
    }
    policy_.polled(clock_.now());
    if (policy_.batches()) send_late();
  }
  // After requests were posted, or queue pairs modified: the thread may have to wake earlier than it planned. `now`: the time
  // of the posting, by a program that is going to poll; 0: of something else. The third posting without a poll, and what
  // follows it, wait for the poll, or until they fill a segmented send.
  void posted(uint64_t now = 0) noexcept {
    // Packets do not wait for a card, which has a queue of its own.
    if (now != 0 && policy_.posted(now) && !card_ && ports_.may_wait()) {
      if (policy_.batch(now)) wake_thread();
      return;
    }
    if (policy_.holds_packets()) {
      send_late();
    } else {
      flush_ports();
    }
    if (policy_.is_armed() && has_unsent()) [[unlikely]] {
      wake_thread();
    } else if (policy_.is_before_thread(adapter_.next_due())) [[unlikely]] {
      if (now == 0) wake_thread();
      else wake_for_timer(now);
    }
  }
  // A thread of the program arms a queue, and is about to sleep until its event. The progress thread takes the packets then, unless
  // that thread sleeps in sleep_instead(), as it did last time. If it does not, the progress thread notices within check_ns_max. `thread`: any address that no other thread has.
  void expect_sleep(proto::roce::CompletionQueue& cq, bool solicited_only,
                    const void* thread = nullptr) noexcept {
    cq.arm(solicited_only, thread);
    if (policy_.expect_sleep(thread)) [[unlikely]]
      wake_thread();
    posted();
  }
  // Sleeps until has_event(of) is true, or `fd` readable, and takes what arrives meanwhile, instead of the progress thread: the
  // peer wakes the program, and no other thread. One thread at a time, while no other one polls, and only while no other one has armed
  // a queue: the progress thread has to look for those when this thread is awake. Where not, sleeps until `fd` is readable. Gives the
  // lock back while it sleeps.
  enum class Slept : uint8_t { Over, Interrupted, Refused };  // Refused: the caller sleeps on `fd` alone
  // `mask`: of the signals while it sleeps, as in ppoll(2), or null.
  Slept sleep_instead(int fd, int (*has_event)(void* of), void* of, const void* thread,
                      const sigset_t* mask) noexcept;
  // Memory that the program registers: a network card reads payloads there. Null where that is of no use. unmap()
  // returns when the card reads no more.
  void* map(void* memory, size_t bytes) noexcept;
  void unmap(void* mapping) noexcept;
  nic::Statistics card_statistics() const noexcept { return card_ ? card_->statistics() : nic::Statistics(); }
  // What the network card counts; nothing without one.
  std::vector<proto::DeviceCounter> card_counters() const {
    return card_ ? card_->counters() : std::vector<proto::DeviceCounter>();
  }
  // The sockets were full.
  bool has_unsent() const noexcept { return adapter_.has_ready() || ports_.is_blocked(); }
  DeviceCounters counters() const noexcept;

 private:
  static constexpr uint64_t spin_ns_max = 1'000'000;  // before a sleep, while packets come that are no event
  // await_acknowledgements()
  static constexpr uint64_t ack_wait_ns_max = 128'000'000;
  static constexpr uint64_t ack_wait_reset_ns =
      1'000'000'000;  // after the last wait that timed out it is the longest again
  static constexpr uint64_t ack_wait_slice_ns = 20'000;

  explicit Device(proto::roce::Events& events);
  Result<void> open_ports(const DeviceSettings& settings);
  Result<void> open_card(const DeviceSettings& settings);
  Result<void> open_port(size_t index, os::SocketAddress address, uint16_t port,
                         const DeviceSettings& settings);
  bool send(const proto::roce::AddressVector& to, const iovec* parts, size_t count) noexcept override;
  void flush() noexcept override { flush_ports(); }
  size_t payload_max(const proto::roce::AddressVector& to) noexcept override {
    return shm_ && to.source_index == 0 ? shm_->payload_max(to.destination) : 0;
  }
  bool send_aggregate(const proto::roce::AddressVector& to, const iovec* parts, size_t count,
                      uint32_t psns) noexcept override;
  void open_shm(const DeviceSettings& settings);
  int receive(uint64_t now) noexcept;
  void answer(uint64_t now, int packets) noexcept;
  int poll_packets(uint64_t now) noexcept {
    const int packets = receive(now);
    answer(now, packets);
    return packets;
  }
  void send_late() noexcept;
  void show(uint64_t now) noexcept;
  void flush_ports() noexcept;
  int receive_from_sockets(uint64_t now) noexcept;
  void empty_sockets(uint64_t now) noexcept;

  // The progress thread.
  void run() noexcept;
  void work(bool sockets_ready) noexcept;
  void check() noexcept;
  void step_aside() noexcept;
  bool skips_checks() noexcept;  // without the lock
  void spin_for_sleeper() noexcept;
  void let_others(bool yields = false) noexcept;
  // What a sleep is on; the first is the sleeper's own.
  struct Descriptors {
    std::array<pollfd, 2 + gid_count> fds;
    nfds_t count = 0;
    nfds_t shm = 0;  // the place of shm_
    void add(int fd) noexcept { fds[count++] = {fd, POLLIN, 0}; }
  };
  bool arm(Descriptors& on) noexcept;  // false: something is there now, or a socket cannot be slept on
  ProgressPolicy::Armed armed(bool may_sleep) const noexcept;  // after arm()
  void disarm(const Descriptors& on) noexcept;
  Slept await(int fd, const sigset_t* mask) noexcept;
  bool spin(int (*has_event)(void* of), void* of) noexcept;
  bool sleep() noexcept;  // gives the lock back meanwhile; true: a socket has something
  void wake_thread() noexcept;
  void wake_for_timer(uint64_t now) noexcept;

  os::Lock lock_;
  os::TickClock clock_;
  ProgressPolicy policy_;
  proto::roce::Adapter adapter_;
  std::unique_ptr<nic::Device> card_;
  Ports ports_;
  std::optional<ShmPort> shm_;
  bool thread_works_ = false;  // the thread has the lock
  // Cold below.
  Groups groups_{adapter_, ports_};
  SpinPolicy spins_, thread_spins_;  // of a thread of the program that sleeps; of the progress thread
  uint64_t ack_wait_ns_ = ack_wait_ns_max;
  uint64_t in_vain_at_ = 0;
  AfterUnlock* after_unlock_ = nullptr;
  DeviceCounters counters_;
  std::optional<Shown> shown_;
  uint64_t shown_packets_ = 0;
  std::atomic<bool> stop_{false};
  std::optional<os::Event> wake_;
  os::Origin origin_;
  os::Thread thread_;
};

}  // namespace weft::link::roce
