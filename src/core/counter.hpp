// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A completion counter and what waits for its values (fi_cntr(3), fi_trigger(3)). Must not know endpoints'
// kinds or system calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "core/progress.hpp"

namespace weft::core {

class Counter;

// Something that happens once when a counter reaches a value. Lives where its owner puts it; must stay
// until reached or cancelled.
class Threshold {
 public:
  uint64_t at = 0;
  bool with_errors = false;  // counts value() + errors(): fi_trigger(3), deferred work queues
  // Called once, outside the counter's mutex, by the thread whose add() reached the value (in `when` if it
  // was reached already).
  virtual void reached() noexcept = 0;

  Threshold* next = nullptr;  // the counter's, like `queued`
  bool queued = false;

 protected:
  ~Threshold() = default;
};

// Every member may be called by any thread.
class Counter {
 public:
  Counter() = default;
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  void add(uint64_t n) noexcept {
    const uint64_t now = value_.fetch_add(n, std::memory_order_seq_cst) + n;
    if (now >= nearest_.load(std::memory_order_seq_cst)) [[unlikely]]
      fire();
  }
  void add_error(uint64_t n) noexcept;
  void set(uint64_t value) noexcept;
  void set_error(uint64_t value) noexcept;
  uint64_t value() const noexcept { return value_.load(std::memory_order_acquire); }
  // Sequentially consistent: the look after arm() comes behind its store of armed_ (add_error() reads that behind its addition).
  uint64_t errors() const noexcept { return errors_.load(std::memory_order_seq_cst); }

  // Runs `threshold.reached()` when value() (or the sum with errors()) >= threshold.at; at once if it is so
  // already. Equal values fire in the order of `when`.
  void when(Threshold& threshold) noexcept;
  // True: it was waiting and will not be reached any more. False: it was reached (perhaps is being reached
  // by another thread).
  bool cancel(Threshold& threshold) noexcept;

  void add(Progressor& progressor) { progressors_.add(progressor); }  // under the domain lock
  bool remove(Progressor& progressor) noexcept { return progressors_.remove(progressor); }
  const ProgressorList& progressors() const noexcept { return progressors_; }
  void progress() const noexcept { progressors_.progress(); }
  void drive() const noexcept { progressors_.drive(); }  // now and then, of calls that need not

  // While armed, a change of the error count or a value of at least `at` notifies the signal, once. Armed
  // twice, the lower value counts. The caller looks at value() and errors() again after arm(): what was
  // there before makes no notice.
  void set_signal(Signal* signal) noexcept { signal_ = signal; }
  void arm(uint64_t at) noexcept;
  void disarm() noexcept;

 private:
  struct SignalThreshold final : Threshold {
    Counter* counter = nullptr;
    void reached() noexcept override;
  };

  void fire() noexcept;
  Threshold* pop_reached() noexcept;
  void insert(Threshold& threshold) noexcept;
  bool unlink(Threshold& threshold) noexcept;
  void publish() noexcept;
  // Thresholds in order. Most come in order, too, so the last one is at hand.
  struct Queue {
    Threshold* first = nullptr;
    Threshold* last = nullptr;
  };
  Queue& queue_of(const Threshold& threshold) noexcept {
    return threshold.with_errors ? with_errors_ : plain_;
  }
  void notify_signal() noexcept;

  std::atomic<uint64_t> value_{0};
  std::atomic<uint64_t> nearest_{
      UINT64_MAX};  // the value at which to look; a threshold of UINT64_MAX itself is never reached
  std::atomic<uint64_t> errors_{0};
  std::atomic<bool> errors_matter_{false};  // something waits for the sum
  std::mutex mutex_;                        // the lists
  Queue plain_;
  Queue with_errors_;
  ProgressorList progressors_;
  Signal* signal_ = nullptr;
  std::atomic<bool> armed_{false};
  SignalThreshold signal_threshold_;
};

}  // namespace weft::core
