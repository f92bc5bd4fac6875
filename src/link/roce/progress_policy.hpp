// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ProgressPolicy: the schedule of a device. It decides whether the program or the progress thread takes packets, until when the thread sleeps,
// and what waits for the program's next call. docs/verbs.md has the rules ("Calls that wait", "Programs that sleep", "The progress thread").
//
// The owner tells it each event, with the time, and does what it decides:
//   polls     poll_finds_completion(), poll_begins(), takes(), took()
//   posts     posted(), batch(), wakes_for_timer()
//   sockets   sockets_polled(); is_due(Timer::Sockets)
//   sends     released(): all that waited has left
//   thread    plan_sleep(), falls_asleep(), skips_checks(), woke(); then check() and checked() while it stands aside, else turn_begins(),
//             leaves_to_program(), goes_on() for each turn
//   sleepers  expect_sleep(), program_sleep_begins(), program_plans(), ProgramSleep::woke(), program_sleep_ends()
// Where a decision is to wake the thread the owner does so and calls thread_notified().
//
// All calls with the owner's lock, except those under "without the lock", which only the thread makes. Times are nanoseconds of one clock that
// never goes back. Must not know sockets, threads, locks or clocks.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace weft::link::roce {

// Read or written by the progress thread without the owner's lock. Each use says what orders it.
template <class T>
class Glimpsed {
 public:
  constexpr Glimpsed(T value = {}) noexcept : value_(value) {}  // NOLINT(google-explicit-constructor)
  Glimpsed& operator=(T value) noexcept {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  operator T() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }  // NOLINT(google-explicit-constructor)

 private:
  std::atomic<T> value_;
};

// Times by name. Those before Key::WithLock are also used without the lock.
template <class Key>
class TimeTable {
 public:
  template <Key key>
  auto& at() noexcept {
    constexpr auto index = static_cast<size_t>(key);
    if constexpr (index < glimpsed_count) return glimpsed_[index];
    else return locked_[index - glimpsed_count];
  }
  template <Key key>
  uint64_t get() const noexcept {
    constexpr auto index = static_cast<size_t>(key);
    if constexpr (index < glimpsed_count) return glimpsed_[index];
    else return locked_[index - glimpsed_count];
  }

 private:
  static constexpr auto glimpsed_count = static_cast<size_t>(Key::WithLock);
  std::array<uint64_t, static_cast<size_t>(Key::Count) - glimpsed_count> locked_{};
  std::array<Glimpsed<uint64_t>, glimpsed_count> glimpsed_{};
};

// What comes at a time, or is allowed from then on. 0: at once.
enum class Timer : uint8_t {
  // The thread wakes; 0: it is awake, or the device has none. batch() and skips_checks() order it with batches_ by a fence of each side.
  ThreadWakes,
  // The thread sends the deferred acknowledgement. Not ordered with defers_acknowledgement_: the thread may read an earlier time, then it takes the
  // lock and checks again.
  DeferredAcknowledgement,
  WithLock,
  Train = WithLock,  // the deferred acknowledgement waits no longer for that of the peer
  QueuePairs,        // a timer of the queue pairs before that wakes the thread; 0: none does
  Sockets,           // the sockets are polled; before that shared memory alone
  Statistics,        // the statistics page is written
  ProbeWake,         // a probe alone may wake the thread
  ThreadDue,         // the thread's last sleep ends. Only the thread uses it, with and without the lock
  Count,
};

// When something happened last.
enum class Last : uint8_t {
  Check,  // the program looked for packets. Never goes back: the thread may read an earlier one, then it takes the lock
  WithLock,
  Poll = WithLock,  // the program polled
  Post,             // the program posted
  OneSided,         // the thread took a one-sided operation alone
  SocketPackets,    // packets came by a socket
  Count,
};

// What the policy asks about the queue pairs. proto::roce::Adapter says what the functions mean.
template <class Q>
concept QueuePairTimes = requires(const Q& queue_pairs, uint64_t ns, uint64_t& otherwise) {
  { queue_pairs.next_due() } -> std::same_as<uint64_t>;
  { queue_pairs.is_probe_next(otherwise) } -> std::same_as<bool>;
  { queue_pairs.owes_acknowledgement_alone() } -> std::same_as<bool>;
  { queue_pairs.awaits_acknowledgement() } -> std::same_as<bool>;
  { queue_pairs.may_wait(ns) } -> std::same_as<bool>;
};

class ProgressPolicy {
 public:
  // A program that polled or posted in that time polls again before long. Shorter ones take a system call for a pause, or the wake-up
  // of the thread on the program's CPU.
  static constexpr uint64_t active_ns = 100'000;
  static constexpr uint64_t taking_ns = 50'000;  // a program that looked in that time takes what comes
  static constexpr uint64_t polling_ns =
      20'000;  // likewise, and one-sided operations for which it does not poll
  static constexpr uint64_t least_sleep_ns = 20'000;  // of a thread that stands aside
  static constexpr uint64_t check_ns_min = 50'000;
  static constexpr uint64_t check_ns_max = 1'000'000;
  static constexpr unsigned vain_max = 3;  // spurious wake-ups in a row
  static constexpr unsigned polls_of_a_sleeper =
      16;  // a program that arms a queue and polls it no more often, sleeps
  static constexpr uint64_t overdue_ns = 20'000'000;  // a timer, while packets come
  static constexpr uint64_t no_room_ns = 200'000;     // until a full socket is tried again
  static constexpr uint64_t probe_wake_ns =
      10'000'000;  // between two wake-ups of the thread for a probe alone
  // While packets come by shared memory and the sockets have been quiet, a poll of the sockets is a system call that
  // finds nothing.
  static constexpr uint64_t quiet_ns = 200'000;
  static constexpr uint64_t quiet_check_ns = 10'000;
  static constexpr unsigned vain_polls =
      4;  // of which one asks for the time, while shared memory alone has to be polled
  static constexpr unsigned polled_per_poll = 16;
  static constexpr unsigned posts_at_once = 2;
  static constexpr uint64_t replying_ns =
      200'000;  // from a posting until the next operation that it will be the reply to
  static constexpr uint64_t late_ns = 30'000;  // an acknowledgement of the thread waits so long for that
  static constexpr int alone_packets_max = 2;  // a one-sided operation, and the acknowledgement of ours
  static constexpr int late_packets_max = 8;   // of a poll whose acknowledgement may wait for the next call
  static constexpr uint64_t show_ns = 100'000'000;  // between two writes of the statistics page

  // Before the first event.
  struct Settings {
    bool may_wait = true;  // false: nothing waits for the program's next call
    bool has_thread = false;
    bool one_by_one = false;  // packets that were sent in one call come one by one: packet sockets
  };
  Settings settings;
  // The thread's times are so many times as long: system calls and wake-ups are slow.
  void set_scale(uint64_t scale) noexcept {
    scale_ = scale;
    check_ns_ = scaled(check_ns_min);
  }
  uint64_t scaled(uint64_t ns) const noexcept { return ns * scale_; }

  // --- state ---
  bool stands_aside() const noexcept { return is_aside_; }
  bool is_armed() const noexcept { return is_armed_; }  // the thread sleeps on the sockets
  bool has_sleeper() const noexcept { return has_sleeper_; }
  bool defers_acknowledgement() const noexcept { return defers_acknowledgement_; }
  bool batches() const noexcept { return batches_; }
  bool holds_packets() const noexcept { return defers_acknowledgement_ || batches_; }
  template <Timer timer>
  bool is_due(uint64_t now) const noexcept {
    return now >= timers_.get<timer>();
  }
  uint64_t polled_at() const noexcept { return last_.get<Last::Poll>(); }

  // --- the program polls ---
  // A queue had a completion. True: this poll takes packets all the same, as one of polled_per_poll does. A program may find a completion at each
  // call.
  bool poll_finds_completion() noexcept {
    if (--polled_left_ != 0) [[likely]]
      return false;
    polled_left_ = polled_per_poll;
    vain_polls_left_ = 0;
    return true;
  }
  // Otherwise. What batches() leaves now.
  void polled(uint64_t now) noexcept {
    poll_begins();
    last_.at<Last::Poll>() = now;
  }
  // A poll that takes packets. What batches() leaves now.
  void poll_begins() noexcept {
    if (sleeper_polls_left_ != 0) --sleeper_polls_left_;
    posts_ = 0;
  }
  // A poll that finds shared memory empty may end there, without the time. It calls polled_in_vain() then, else takes().
  bool may_poll_in_vain() const noexcept { return vain_polls_left_ != 0; }
  void polled_in_vain() noexcept { --vain_polls_left_; }
  void takes(uint64_t now) noexcept {
    vain_polls_left_ = vain_polls - 1;
    last_.at<Last::Poll>() = now;
    last_.at<Last::Check>() = now;
  }
  struct Taken {
    int packets = 0;
    bool by_socket = false;
    bool is_one_sided = false;  // one-sided operations are among them
  };
  enum class Answer : uint8_t {
    Wait,  // for the program's next call, which sends the acknowledgement
    Send,  // acknowledgements and what else is due
    WakeAndSend,
  };
  // After takes(). A system call each way is most of the time that a message takes between two hosts; and a program that writes and waits for a
  // write takes it by the poll for the acknowledgement.
  template <QueuePairTimes Q>
  Answer took(uint64_t now, const Taken& taken, const Q& queue_pairs) noexcept {
    // Packets that were sent in one call come one by one: a message, then the acknowledgement that this program
    // waits for.
    const bool is_train = defers_acknowledgement_ && now < timers_.get<Timer::Train>();
    if ((!defers_acknowledgement_ || is_train) && (taken.by_socket || taken.is_one_sided) &&
        taken.packets <= late_packets_max && queue_pairs.owes_acknowledgement_alone() && !has_sleeper_ &&
        settings.may_wait && settings.has_thread && queue_pairs.may_wait(scaled(check_ns_max))) {
      // The thread sends it where the program makes no call.
      if (!thread_checks_soon(now))
        // It sleeps until a packet comes, and next time no longer than check_ns_max.
        return taken.is_one_sided ? Answer::WakeAndSend : Answer::Send;
      if (is_train) return Answer::Wait;
      defer(now);
      timers_.at<Timer::Train>() =
          settings.one_by_one && queue_pairs.awaits_acknowledgement() ? now + scaled(late_ns) : 0;
      return Answer::Wait;
    }
    return taken.packets != 0 || !is_train ? Answer::Send : Answer::Wait;
  }

  // --- the program posts, or modifies queue pairs ---
  // True: the packets may wait for the poll that is to come, if they may wait at all; then batch() instead of sending them. The third posting
  // without a poll, and those that follow it, do so.
  bool posted(uint64_t now) noexcept {
    last_.at<Last::Post>() = now;
    return ++posts_ > posts_at_once && is_aside_ && settings.may_wait;
  }
  // True: wake the thread. It looks in time then, and as often while the program goes on so.
  bool batch(uint64_t now) noexcept {
    if (batches_) return false;
    batches_ = true;
    has_batched_ = true;
    // Either this load sees when the thread wakes, or the thread's second look in skips_checks() sees the flag.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return timers_.get<Timer::ThreadWakes>() > now + no_room_ns;
  }
  // A timer is due before the thread wakes.
  bool is_before_thread(uint64_t due) const noexcept { return due < timers_.get<Timer::QueuePairs>(); }
  // Then. True: wake the thread. A probe (proto/roce/tail.cpp) alone wakes the thread at most once in
  // probe_wake_ns, and not where the thread wakes within check_ns_max.
  template <QueuePairTimes Q>
  bool wakes_for_timer(uint64_t now, const Q& queue_pairs) noexcept {
    uint64_t otherwise = 0;
    if (queue_pairs.is_probe_next(otherwise) && otherwise >= timers_.get<Timer::ThreadWakes>()) {
      if (timers_.get<Timer::ThreadWakes>() <= now + scaled(check_ns_max) || !is_due<Timer::ProbeWake>(now))
        return false;
      timers_.at<Timer::ProbeWake>() = now + probe_wake_ns;
    }
    return true;
  }
  void thread_notified() noexcept {
    timers_.at<Timer::ThreadWakes>() = 0;
    timers_.at<Timer::QueuePairs>() = 0;
    is_armed_ = false;
  }

  // --- packets ---
  // The sockets are not polled before that time, but by sockets_polled() again. 0: the next poll polls them.
  void rest_sockets(uint64_t until) noexcept { timers_.at<Timer::Sockets>() = until; }
  bool rests_sockets() const noexcept { return timers_.get<Timer::Sockets>() != 0; }
  void sockets_polled(uint64_t now, int packets, bool has_rings) noexcept {
    if (packets != 0) last_.at<Last::SocketPackets>() = now;
    const bool is_quiet = has_rings && now - last_.get<Last::SocketPackets>() > quiet_ns;
    timers_.at<Timer::Sockets>() = is_quiet ? now + quiet_check_ns : 0;
  }
  // What waited is sent.
  void released() noexcept {
    defers_acknowledgement_ = false;
    batches_ = false;
  }
  // A timer that is due then runs although packets come, of which one of the next may be what it waits for.
  static bool is_overdue(uint64_t now, uint64_t due) noexcept { return due < now - overdue_ns; }
  void shown(uint64_t now) noexcept { timers_.at<Timer::Statistics>() = now + show_ns; }

  // --- the thread sleeps ---
  struct Sleep {
    uint64_t until = 0;     // UINT64_MAX: until something wakes it
    bool is_aside = false;  // on nothing but its own descriptor
    bool arms = false;      // on sockets and rings
  };
  // `has_news`: the statistics page is out of date.
  template <QueuePairTimes Q>
  Sleep plan_sleep(uint64_t now, const Q& queue_pairs, bool has_unsent, bool has_news) noexcept {
    // A thread of the program that has slept since the last look here sleeps on.
    const bool is_asleep = is_aside_ && has_sleeper_ && sleeps_seen_ == sleeps_;
    sleeps_seen_ = sleeps_;
    Sleep sleep;
    sleep.is_aside = is_aside_ && !is_asleep;
    sleep.arms = !is_aside_;
    sleep.until = queue_pairs.next_due();
    if (sleep.is_aside) {
      // A program that polls runs the probes of what it posts itself, and there is one after each packet.
      if (uint64_t otherwise = 0; queue_pairs.is_probe_next(otherwise)) sleep.until = otherwise;
    }
    limit_sleep(sleep, now, has_unsent, has_news);
    return sleep;
  }
  // What plan_sleep() could not know before sockets and rings were armed.
  struct Armed {
    bool may_sleep = true;     // false: something is there now, or a socket cannot be slept on
    bool has_packets = false;  // in shared memory. Then
    uint64_t shm_due = UINT64_MAX;
  };
  void falls_asleep(Sleep& sleep, uint64_t now, const Armed& armed) noexcept;
  void woke() noexcept {
    thread_notified();
    rest_sockets(0);
  }

  // --- without the lock ---
  // Whether the program takes packets itself and nothing waits for the thread, so that it sleeps for another check_ns(). The lock of a program that
  // polls is taken most of the time: to wait for it makes a system call of each of the program's calls.
  bool may_skip_checks() const noexcept { return is_aside_ && !batches_; }
  bool skips_checks(uint64_t now) noexcept;  // then
  uint64_t check_ns() const noexcept { return check_ns_; }

  // --- the thread is awake and stands aside ---
  enum class Check : uint8_t {
    Nothing,
    Send,  // what waits. Alone: a timer that was set when a packet was posted must not find that it is due before it has left
    Take,  // packets; then checked()
  };
  Check check(uint64_t now) noexcept;
  void checked(uint64_t now, int packets, bool is_one_sided) noexcept;
  // Instead of both while a thread of the program sleeps, which takes what arrives: the timers are left to this one.
  bool checks_beside_sleeper(uint64_t now, uint64_t due, bool has_unsent) const noexcept {
    return now >= std::min(due, timers_.get<Timer::Statistics>()) || has_unsent || batches_ ||
           defers_acknowledgement_;
  }
  void stand_aside() noexcept {
    is_aside_ = true;
    vain_ = 0;
    check_ns_ = scaled(check_ns_min);
  }

  // --- the thread is awake and takes packets, turn by turn ---
  struct Turn {
    uint64_t now = 0;
    bool is_first = true;
    bool is_polling = false;  // a program that polls takes what comes itself, but for this thread in its way
    int packets = 0;
    bool is_one_sided = false;
  };
  // False: the thread is to stand aside.
  bool turn_begins(Turn& turn, uint64_t now, bool sockets_ready) noexcept {
    turn.now = now;
    turn.is_polling = !expects_sleeper() && is_active(now, scaled(active_ns));
    return !turn.is_polling || (turn.is_first && !sockets_ready) || ++vain_ < vain_max;
  }
  // The thread has taken turn.packets. True: the program's next call is to come, and nothing else is due.
  template <QueuePairTimes Q>
  bool leaves_to_program(const Turn& turn, const Q& queue_pairs) noexcept {
    const uint64_t now = turn.now;
    if (turn.packets != 0 && turn.packets <= alone_packets_max && turn.is_one_sided &&
        will_reply(now, queue_pairs)) {
      defer(now);
      if (!polls_now(now)) vain_ = 0;  // nobody polls for these
      return true;
    }
    return turn.packets <= (settings.one_by_one ? 1 : 0) && defers_acknowledgement_ &&
           !is_due<Timer::DeferredAcknowledgement>(now) && now < queue_pairs.next_due() &&
           !is_due<Timer::Statistics>(now) && queue_pairs.owes_acknowledgement_alone();
  }
  // The thread has answered. True: another turn follows. `sends_more`: the turn of sending was bounded, and the sockets are not full.
  bool goes_on(Turn& turn, bool sends_more) noexcept;

  // The program sleeps in poll(2), or in several threads: the thread looks for more packets before it sleeps (SpinPolicy), and goes on while
  // spins_for_sleeper().
  bool expects_sleeper() const noexcept { return sleeper_polls_left_ != 0; }
  bool spins_for_sleeper() const noexcept { return expects_sleeper() && !is_aside_ && !has_sleeper_; }

  // --- threads of the program that sleep --- `thread`: any address that no other thread has.
  // One arms a queue, and is about to sleep until its event. True: wake the progress thread, which takes the packets then, unless that thread sleeps
  // in the device, as it did last time. If it does not, the progress thread notices within check_ns_max.
  bool expect_sleep(const void* thread) noexcept {
    sleeper_polls_left_ = polls_of_a_sleeper;
    vain_ = 0;
    if (!is_aside_ || has_sleeper_ || (slept_instead_ && thread == sleeping_thread_ && waiters_ == 0))
        [[likely]]
      return false;
    is_aside_ = false;
    return true;
  }
  // One sleeps until its event alone, which another thread makes. True: wake the progress thread.
  bool waiter_begins() noexcept {
    const bool wakes = is_aside_ && !has_sleeper_;
    if (wakes) is_aside_ = false;
    return wakes;
  }
  void count_waiter(bool sleeps) noexcept { waiters_ += sleeps ? 1U : -1U; }

  // One sleeps in the device and takes what arrives, instead of the progress thread. One at a time.
  struct ProgramSleep {
    const void* thread = nullptr;
    uint64_t polled_at = 0;  // when this sleep began
    unsigned vain = 0;       // wake-ups in a row without the event, while another thread polled
    bool is_vain() const noexcept { return vain >= vain_max; }
    void woke(uint64_t now_polled_at) noexcept { vain = now_polled_at != polled_at ? vain + 1 : 0; }
  };
  bool is_sleeping(const void* thread) const noexcept { return has_sleeper_ && sleeping_thread_ == thread; }
  // Its signal handler calls, or has left the last call by siglongjmp(3).
  void forget(const void* thread) noexcept {
    if (is_sleeping(thread)) has_sleeper_ = false;
  }
  bool program_sleep_begins(const ProgramSleep& sleep) noexcept;  // true: wake the progress thread
  void program_checks(uint64_t now) noexcept { last_.at<Last::Check>() = now; }  // and takes what came
  struct ProgramPlan {
    uint64_t limit_ns = UINT64_MAX;
    bool wakes_thread = false;  // a timer is due before it wakes. Probes are the sleeper's
  };
  template <QueuePairTimes Q>
  ProgramPlan program_plans(uint64_t now, const Q& queue_pairs, const Armed& armed,
                            bool has_unsent) const noexcept {
    ProgramPlan plan;
    uint64_t due = queue_pairs.next_due();
    if (uint64_t otherwise = 0; queue_pairs.is_probe_next(otherwise)) {
      plan.limit_ns = due > now ? due - now : 0;
      due = otherwise;
    }
    plan.wakes_thread = std::min(due, armed.shm_due) < timers_.get<Timer::ThreadWakes>();
    if (armed.has_packets) plan.limit_ns = 0;
    else if (!armed.may_sleep || has_unsent) plan.limit_ns = std::min(plan.limit_ns, no_room_ns);
    return plan;
  }
  // `armed_by_other`: another thread of the program has armed a queue. True: wake the progress thread.
  bool program_sleep_ends(const ProgramSleep& sleep, uint64_t now, bool armed_by_other) noexcept;

 private:
  // Whether the program has polled or posted in that time.
  bool is_active(uint64_t now, uint64_t in_ns) const noexcept {
    return last_.get<Last::Poll>() + in_ns > now || last_.get<Last::Post>() + in_ns > now;
  }
  bool polls_now(uint64_t now) const noexcept { return now - last_.get<Last::Check>() < scaled(polling_ns); }
  // The time by which the program is judged: to wake the thread may take the program's processor for a while.
  uint64_t before_waking(uint64_t now) const noexcept {
    return std::min(now, timers_.get<Timer::ThreadDue>());
  }
  bool takes_itself(uint64_t then) const noexcept {
    return last_.get<Last::Check>() + scaled(taking_ns) > then;
  }
  void defer(uint64_t now) noexcept {
    defers_acknowledgement_ = true;
    timers_.at<Timer::DeferredAcknowledgement>() = now + scaled(late_ns);
  }
  void limit_sleep(Sleep& sleep, uint64_t now, bool has_unsent, bool has_news) const noexcept;

  bool thread_checks_soon(uint64_t now) const noexcept {
    return is_aside_ || timers_.get<Timer::ThreadWakes>() <= now + scaled(check_ns_max);
  }
  // Whether the program posted because of the last one-sided operation that came alone: then it will of this one, and the
  // acknowledgement leaves with what it posts. The peer that waits for the acknowledgement takes both.
  template <QueuePairTimes Q>
  bool will_reply(uint64_t now, const Q& queue_pairs) noexcept {
    const bool has_replied = last_.get<Last::Post>() > last_.get<Last::OneSided>() &&
                             now - last_.get<Last::Post>() < scaled(replying_ns);
    last_.at<Last::OneSided>() = now;
    return settings.may_wait && has_replied && !defers_acknowledgement_ &&
           queue_pairs.owes_acknowledgement_alone() && queue_pairs.may_wait(scaled(late_ns));
  }

  TimeTable<Last> last_;
  TimeTable<Timer> timers_;
  unsigned vain_polls_left_ = 0;  // until one asks for the time
  unsigned polled_left_ = polled_per_poll;
  unsigned sleeper_polls_left_ =
      0;                // until the program, which said that it would sleep, counts as one that does not
  unsigned posts_ = 0;  // since the last poll
  bool is_armed_ = false;
  // An acknowledgement waits for the program's next call. A thread that reads false meanwhile looks again within check_ns_max.
  Glimpsed<bool> defers_acknowledgement_ = false;
  // Packets wait in the ports for the program's next call. batch() and skips_checks() order it with Timer::ThreadWakes by a fence of each side.
  Glimpsed<bool> batches_ = false;
  // Since the thread's last look, which resets it. Set before the fence of batch(); one that is lost in a reset is found by the second look behind the
  // thread's fence.
  Glimpsed<bool> has_batched_ = false;
  // Cold below.
  // Written with the lock. A thread of the program that resets it then notifies the progress thread, which takes the lock.
  Glimpsed<bool> is_aside_ = false;
  bool has_sleeper_ = false;    // a thread of the program sleeps in the device
  bool slept_instead_ = false;  // the last one that did is expected to do so again
  const void* sleeping_thread_ = nullptr;
  unsigned waiters_ = 0;                   // threads that sleep until their event alone
  uint32_t sleeps_ = 0, sleeps_seen_ = 0;  // of the program in the device; by the thread
  unsigned vain_ = 0;                      // wake-ups in a row although the program was active
  uint64_t scale_ = 1;
  // From one look to the next. The thread doubles it without the lock, a thread of the program that slept sets the longest one: either may win, and
  // both are within the bounds.
  Glimpsed<uint64_t> check_ns_ = check_ns_min;
};

}  // namespace weft::link::roce
