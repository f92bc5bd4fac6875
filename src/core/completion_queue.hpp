// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A queue of completions: a ring that costs a few stores to fill and a few loads to empty. Must not know
// system calls, locks or endpoints' kinds. Not thread-safe: the domain lock or the program serialises
// (fi_domain(3), threading).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "base/assert.hpp"
#include "core/progress.hpp"

namespace weft::core {

// In the order of fi_cq_tagged_entry (fi_cq(3), formats), so that every format is a prefix of it.
struct Completion {
  void* context = nullptr;
  uint64_t flags = 0;
  size_t len = 0;
  void* buf = nullptr;
  uint64_t data = 0;
  uint64_t tag = 0;
  fi_addr_t source = FI_ADDR_NOTAVAIL;
};
static_assert(sizeof(Completion) == 56);
static_assert(offsetof(Completion, tag) == offsetof(fi_cq_tagged_entry, tag));

struct CompletionError {
  Completion base;
  size_t olen = 0;  // bytes that did not fit
  int err = 0;      // positive FI_E*
  int prov_errno = 0;
  std::array<std::byte, 64> err_data{};  // FI_SOURCE_ERR: the address of an unknown sender
  uint8_t err_data_size = 0;
};

// What is done after empty polls of a program: other threads may wait for its processor. Implemented above system calls' room.
struct IdlePolls {
  // `arrived`: something came since the last call. Under the domain lock, which it may let go. After how many more empty polls it wants a call.
  virtual uint32_t idle(bool arrived) noexcept = 0;

 protected:
  ~IdlePolls() = default;
};

// The usual Driver of a queue: any endpoints.
struct AnyEndpoint {
  static void progress(const ProgressorList& list) noexcept { list.progress(); }
  static uint32_t idle(IdlePolls& polls, bool arrived) noexcept { return polls.idle(arrived); }
};

class alignas(64) CompletionQueue {
 public:
  static constexpr size_t size_default = 1024;
  static constexpr size_t size_max = size_t{1} << 20;

  // At least `size` completions (0: the default), rounded up to a power of two. Throws std::bad_alloc.
  explicit CompletionQueue(size_t size = 0);
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // True: the endpoint refuses new operations with -FI_EAGAIN and takes no frames until the program has read.
  bool full() const noexcept { return tail_ - head_ >= limit_ && full_slow(); }

  // Nothing is ever lost: what finds the ring full is held in order, bounded by the operations that were
  // posted before. Only when memory for that is out the queue is overrun (fi_cq(3), notes): what it has can
  // still be read, then every read says so.
  void push(const Completion& completion) noexcept {
    if (tail_ - head_ >= limit_) [[unlikely]] {
      push_slow(completion);
    } else {
      fill(slots_[tail_ & mask_], completion);
      tail_ = tail_ + 1;
    }
    if (state_.armed) [[unlikely]]
      notify_signal();
  }
  // True: there is room in the ring and nobody sleeps, so push_plain() may be called once.
  bool plain() const noexcept { return tail_ - head_ < limit_ && !state_.armed; }
  void push_plain(const Completion& completion) noexcept {
    WEFT_ASSERT(plain());
    fill(slots_[tail_ & mask_], completion);
    tail_ = tail_ + 1;
  }
  // push() of a received message, without a detour over memory.
  [[gnu::always_inline]] void push_tagged(void* context, uint64_t flags, size_t len, void* buf, uint64_t data,
                                          uint64_t tag, fi_addr_t source) noexcept {
    if (tail_ - head_ >= limit_ || state_.armed) [[unlikely]] {
      push({context, flags, len, buf, data, tag, source});
      return;
    }
    auto* to = reinterpret_cast<volatile uint64_t*>(&slots_[tail_ & mask_]);
    to[0] = reinterpret_cast<uint64_t>(context);
    to[1] = flags;
    to[2] = len;
    to[3] = reinterpret_cast<uint64_t>(buf);
    to[4] = data;
    to[5] = tag;
    to[6] = source;
    tail_ = tail_ + 1;
  }
  // Errors stand in order with completions: fi_cq_read returns -FI_EAVAIL when it meets one (fi_cq(3)).
  void push_error(const CompletionError& error) noexcept;

  // The hot path. Format is one of fi_cq_entry, fi_cq_msg_entry, fi_cq_data_entry, fi_cq_tagged_entry.
  // Returns the number read, -FI_EAGAIN, -FI_EAVAIL, or -FI_EOVERRUN. An empty queue drives its endpoints first, but not when the last read
  // has just told the program that it is empty, by returning less than was asked for: Open MPI reads again then, before it does anything
  // with what it got. Of the reads that find something, one in a while drives them as well (is_due()).
  // Driver drives them: a program that knows their type saves the virtual calls.
  template <class Format, bool with_source, class Driver = AnyEndpoint>
  ssize_t read(void* buf, size_t count, fi_addr_t* source) noexcept {
    if (head_ != tail_ && !state_.drive) [[likely]] {
      if (--reads_left_ != 0) [[likely]]
        return read_waiting<Format, with_source, Driver>(static_cast<Format*>(buf), count, source);
      return read_driven<Format, with_source, Driver>(static_cast<Format*>(buf), count, source);
    }
    return read_empty<Format, with_source, Driver>(static_cast<Format*>(buf), count, source);
  }
  // A read would drive the endpoints now, and nothing waits, sleeps or is held. Who drives them otherwise may hand a completion to the program
  // without putting it here.
  bool is_plainly_empty() const noexcept { return head_ == tail_ && is_usual(); }
  // Who drives them otherwise has found nothing. True: as a read that returns -FI_EAGAIN; false: read() has more to do.
  bool count_idle_poll() noexcept {
    WEFT_ASSERT(polls_left_ != 0);
    if (--polls_left_ != 0) [[likely]]
      return true;
    polls_left_ = 1;
    return false;
  }
  // Who drives them otherwise has found something and handed it to the program.
  void count_arrival() noexcept {
    polls_left_ = polls_max_;
    arrived_ = true;
  }
  // For each call that finds something here without a drive. True: it is to drive the endpoints. That is so for one of reads_per_drive, and less
  // often while many entries wait, which would otherwise become more with each drive; for one of reads_per_drive_max in any case.
  bool is_due() noexcept {
    if (--reads_left_ != 0) [[likely]]
      return false;
    set_reads_left();
    return true;
  }
  // An endpoint keeps something back for its next poll: the next read() drives it, whatever is there to read.
  void drive_at_next_read() noexcept { state_.drive = true; }
  // 0 and the error that stands first, or -FI_EAGAIN. Drives the endpoints afterwards.
  int read_error(CompletionError& out) noexcept;
  // Completions and errors that wait; an overrun is one.
  size_t pending() const noexcept { return size_t(tail_ - head_) + held_.size() + (overrun_ ? 1 : 0); }
  size_t size() const noexcept { return size_t(mask_) + 1; }
  bool error_pending() const noexcept { return errors_ != 0 || overrun_; }
  void progress() const noexcept { progressors_.progress(); }
  // For is_due().
  void drive() const noexcept { progressors_.drive(); }

  void add(Progressor& progressor) { progressors_.add(progressor); }
  bool remove(Progressor& progressor) noexcept { return progressors_.remove(progressor); }
  const ProgressorList& progressors() const noexcept { return progressors_; }

  // Sleeping: the next push notifies `signal` once, then no further one until armed again.
  void set_signal(Signal* signal) noexcept { signal_ = signal; }
  void arm() noexcept { state_.armed = signal_ != nullptr; }
  void disarm() noexcept { state_.armed = false; }

  // `polls.idle()` is called after 64 empty polls, then as often as it says.
  void set_idle_polls(IdlePolls* polls) noexcept {
    idle_polls_ = polls;
    polls_left_ = polls_max_ = 64;
  }

 private:
  struct alignas(64) Slot {
    Completion completion;
  };

  // A completion is often read right after it was written in 8-byte stores. A wider load would have to wait
  // until they have left the store buffer, so each word goes through a register of its own.
  using Word [[gnu::may_alias]] = uint64_t;
  static void copy_word(Word* to, const Word* from) noexcept {
    uint64_t word = *from;
    asm("" : "+r"(word));
    *to = word;
  }

  // Word by word, for the same reason: a completion built on the stack and copied by wider moves would wait for its own stores.
  static void fill(Slot& slot, const Completion& from) noexcept {
    auto* to = reinterpret_cast<volatile uint64_t*>(&slot);
    to[0] = reinterpret_cast<uint64_t>(from.context);
    to[1] = from.flags;
    to[2] = from.len;
    to[3] = reinterpret_cast<uint64_t>(from.buf);
    to[4] = from.data;
    to[5] = from.tag;
    to[6] = from.source;
  }

  // These three apart from read(), which then saves no registers for them.
  template <class Format, bool with_source, class Driver>
  [[gnu::noinline]] ssize_t read_waiting(Format* out, size_t count, fi_addr_t* source) noexcept {
    return copy_out<Format, with_source, Driver>(out, count, source);
  }

  template <class Format, bool with_source, class Driver>
  [[gnu::noinline]] ssize_t read_empty(Format* out, size_t count, fi_addr_t* source) noexcept {
    if (!is_usual()) [[unlikely]] {
      const bool drives = std::exchange(state_.drive, false);
      if (drives) {
        state_.sated = false;
        if (head_ != tail_) return read_driven<Format, with_source, Driver>(out, count, source);
      }
      if (state_.sated && !state_.holding && count != 0) {
        state_.sated = false;
        return -FI_EAGAIN;
      }
      if (state_.holding) {
        if (const int status = release_held(); status < 0) return status;
        if (head_ != tail_)
          return is_due() || drives ? read_driven<Format, with_source, Driver>(out, count, source)
                                    : copy_out<Format, with_source, Driver>(out, count, source);
      }
    }
    WEFT_ASSERT(head_ == tail_);
    head_ = 0;  // start again at the first slot, which is in the cache
    tail_ = 0;
    Driver::progress(progressors_);
    if (head_ != tail_) {
      count_arrival();
      return copy_out<Format, with_source, Driver>(out, count, source);
    }
    if (--polls_left_ != 0) [[likely]]
      return -FI_EAGAIN;
    if (const int status = on_many_empty_polls<Driver>(); status != 0) return status;
    return copy_out<Format, with_source, Driver>(out, count, source);
  }

  // The ring has something, and the endpoints are driven all the same. Afterwards: while a queue is full they take no frames.
  template <class Format, bool with_source, class Driver>
  [[gnu::noinline]] ssize_t read_driven(Format* out, size_t count, fi_addr_t* source) noexcept {
    const ssize_t read = copy_out<Format, with_source, Driver>(out, count, source);
    if (count != 0) progressors_.drive();
    set_reads_left();
    return read;
  }

  void set_reads_left() noexcept {
    reads_left_ = reads_per_drive + std::min(tail_ - head_, reads_per_drive_max - reads_per_drive);
  }

  template <class Format, bool with_source, class Driver>
  [[gnu::always_inline]] ssize_t copy_out(Format* out, size_t count, fi_addr_t* source) noexcept {
    const size_t waiting = tail_ - head_;
    WEFT_ASSERT(waiting <= size());
    const size_t n = count < waiting ? count : waiting;
    if (n == 0) [[unlikely]] {  // fi_cq(3), fi_cq_read: a count of 0 drives progress
      Driver::progress(progressors_);
      return 0;
    }
    size_t place = head_ & mask_;
    const Slot* const slots = slots_;
    Format* const end = out + n;
    while (out != end) {
      const Slot* at = slots + place;
      const size_t run = std::min<size_t>(static_cast<size_t>(end - out), size_t{mask_} + 1 - place);
      for (Format* const stop = out + run; out != stop; ++out, ++at) {
        const Word* from = reinterpret_cast<const Word*>(at);
        Word* to = reinterpret_cast<Word*>(out);
        for (size_t w = 0; w < sizeof(Format) / 8; ++w) copy_word(to + w, from + w);
        if constexpr (with_source) copy_word(source++, from + offsetof(Completion, source) / 8);
      }
      place = 0;
    }
    head_ = head_ + uint32_t(n);
    WEFT_ASSERT(tail_ - head_ <= size());
    state_.sated = n != count;
    return ssize_t(n);
  }

  [[gnu::noinline, gnu::cold]] bool full_slow() const noexcept { return pending() > mask_; }
  void push_slow(const Completion& completion) noexcept;
  void hold_no_more() noexcept;
  int release_held() noexcept;
  // A poll found the ring empty, and it was one too many, or something is held. 0: the ring has something now.
  template <class Driver>
  [[gnu::noinline, gnu::cold]] int on_many_empty_polls() noexcept {
    if (!state_.holding)
      polls_left_ = polls_max_ =
          idle_polls_ == nullptr ? UINT32_MAX : Driver::idle(*idle_polls_, std::exchange(arrived_, false));
    return check_again();
  }
  int check_again() noexcept;
  bool hold(const CompletionError& entry) noexcept;
  void notify_signal() noexcept;

  // Hot: one cache line.
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  uint32_t limit_ = 0;  // the ring's size; 0 while something is held: push keeps the order with one compare
  uint32_t mask_ = 0;
  Slot* slots_ = nullptr;
  struct State {  // all false: the usual case, one compare
    bool armed = false;
    bool drive = false;
    bool sated = false;    // the last read took all there was, and had room for more
    bool holding = false;  // limit_ is 0
  };
  bool is_usual() const noexcept { return std::bit_cast<uint32_t>(state_) == 0; }
  State state_;
  uint32_t polls_left_ = UINT32_MAX;  // empty polls until on_many_empty_polls(); 1 while something is held
  bool arrived_ = true;               // since the last on_many_empty_polls()
  uint32_t reads_left_ = reads_per_drive;  // until is_due()
  ProgressorList progressors_;
  // Cold.
  Signal* signal_ = nullptr;
  IdlePolls* idle_polls_ = nullptr;
  uint32_t polls_max_ = UINT32_MAX;
  std::deque<CompletionError> held_;  // err 0: an ordinary completion
  size_t errors_ = 0;                 // of held_
  bool overrun_ = false;              // something could not be held
  std::unique_ptr<Slot[]> storage_;
};

}  // namespace weft::core
