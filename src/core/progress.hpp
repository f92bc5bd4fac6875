// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An endpoint as its queues see it: something that can be driven and slept on. Must not know frames, links
// or system calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::core {

// Who is told that a sleeper has to wake up. Implemented above system calls' room; called from the data path.
struct Signal {
  virtual void notify() noexcept = 0;  // any thread

 protected:
  ~Signal() = default;
};

// Errors of one peer that no completion entry tells of.
struct UnreportedErrors {
  std::span<const std::byte> peer;  // its address, as the address vector has it
  int err;                          // as fi_cq_err_entry has it
  int prov_errno;                   // core::ProviderError
  bool peer_lost;  // messages may not have reached it; false: an inject failed, and the peer goes on
};

// Who shows what an endpoint has done (docs/statistics.md).
struct Watcher {
  virtual void check() noexcept = 0;  // now and then, while the endpoint is driven
  virtual void unreported(const UnreportedErrors&) noexcept {}

 protected:
  ~Watcher() = default;
};

// A call that reads a queue, a counter or events and finds something returns without driving the endpoints, but not for ever: a program may
// find something at each call. One of so many drives.
inline constexpr uint32_t reads_per_drive = 16;
inline constexpr uint32_t reads_per_drive_max = 256;  // while many entries wait

// All calls are made with the domain lock held, if the domain has one. Without a lock the program
// serialises them (fi_domain(3), FI_THREAD_DOMAIN and FI_THREAD_COMPLETION).
class Progressor {
 public:
  virtual void progress() noexcept = 0;  // take frames, push completions
  virtual int
  wait_fd() noexcept = 0;  // readable when something came after arm() returned true, or a peer died; -1: none
  // True: nothing to do, safe to sleep on wait_fd(). False: there is work; what was armed before stays so.
  virtual bool arm() noexcept = 0;
  virtual void disarm() noexcept = 0;  // after a sleep: wait_fd() is quiet again

  // progress(), for who wants to know whether anything came. False where that is not known.
  virtual bool advance() noexcept {
    progress();
    return false;
  }

  // Something was accepted that needs calls of progress() in time, though the program waits for nothing: bytes that the peer has not acknowledged,
  // acknowledgements that it is owed. Retransmission in a word. False where the link below needs no such calls.
  virtual bool has_background_work() noexcept { return false; }
  // has_background_work() is false: `signal` is notified once when that changes. Null: nobody is.
  virtual void notify_background_work(Signal*) noexcept {}

  // progress() for the program, by way of a queue or counter. The count tells a progress thread that somebody polls.
  void poll() noexcept {
    ++polls_;
    progress();
  }
  uint64_t polls() const noexcept { return polls_; }
  // For one progress thread: whether somebody has polled since mark_polls().
  bool was_polled() const noexcept { return static_cast<uint32_t>(polls_) != polls_marked_; }
  void mark_polls() noexcept { polls_marked_ = static_cast<uint32_t>(polls_); }

  // Several queues may sleep on one endpoint, so arm and disarm are counted here. Queues call only these two.
  bool begin_sleep() noexcept;
  void end_sleep() noexcept;
  unsigned sleepers() const noexcept { return sleepers_; }

 protected:
  ~Progressor() = default;

 private:
  uint64_t polls_ = 0;
  unsigned sleepers_ = 0;
  uint32_t polls_marked_ = 0;
};

// The progressors of one queue. An endpoint that is bound twice (transmit and receive on one queue) is
// counted and driven once.
class ProgressorList {
 public:
  void add(Progressor& progressor);              // may throw std::bad_alloc
  bool remove(Progressor& progressor) noexcept;  // true: this was its last binding

  void progress() const noexcept {
    if (only_ != nullptr) [[likely]] {
      only_->poll();
    } else {
      progress_all();
    }
  }
  // Not counted as a poll of the program: one that drives so seldom must not keep a progress thread away.
  void drive() const noexcept {
    for (Progressor* const each : *this) each->progress();
  }
  Progressor* only() const noexcept { return only_; }  // null: none or several
  bool empty() const noexcept { return begin_ == end_; }
  size_t size() const noexcept { return size_t(end_ - begin_); }
  Progressor* const* begin() const noexcept { return begin_; }
  Progressor* const* end() const noexcept { return end_; }

 private:
  void publish() noexcept;
  void progress_all() const noexcept;

  Progressor* only_ = nullptr;  // the usual case: exactly one
  Progressor* const* begin_ = nullptr;
  Progressor* const* end_ = nullptr;
  std::vector<Progressor*> list_;
  std::vector<unsigned> bindings_;
};

}  // namespace weft::core
