// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SessionTable: which of an endpoint's connections a poll looks at. Hot ones are read in every poll, dirty ones are
// written, stalled ones are shown their refused frame again; all others are asked now and then, by epoll
// (is_check_due()): once in so many polls, and in the next poll when check_interval_ns are over, for who polls seldom. Must not know what a session is.
//
// A session derives from Session, which only its table writes. Room in the lists is made with the session
// (reserve()), so that nothing fails later. A session that goes is removed first. The functions that are passed in
// may remove any session, not add one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/assert.hpp"
#include "os/tick_clock.hpp"

namespace weft::link::tcp {

struct Session {
  bool hot = false;
  bool dirty = false;
  bool stalled = false;
  uint32_t silent = 0;  // polls in which it had nothing, while hot; counted by whoever reads
};

template <class S, class Clock = os::TickClock>
class SessionTable {
 public:
  static constexpr size_t hot_max = 4;
  static constexpr uint32_t silent_polls_max = 64;
  static constexpr uint32_t busy_polls_per_check = 64;
  static constexpr uint32_t idle_polls_min = 4;  // between two looks
  static constexpr uint32_t idle_polls_max = 64;
  static constexpr uint64_t check_interval_ns = 200'000;

  // Throws std::bad_alloc.
  void reserve(size_t sessions) {
    for (auto* list : {&dirty_, &stalled_})
      if (list->capacity() < sessions) list->reserve(2 * sessions);
  }
  void remove(S& session) noexcept {
    if (session.hot) demote(session);
    if (session.dirty) std::erase(dirty_, &session);
    if (session.stalled) std::erase(stalled_, &session);
    session.dirty = session.stalled = false;
  }
  void clear() noexcept {
    hot_count_ = 0;
    dirty_.clear();
    stalled_.clear();
  }

  // --- hot ---
  size_t hot_count() const noexcept { return hot_count_; }
  S& hot(size_t i) const noexcept {
    WEFT_ASSERT(i < hot_count_);
    return *hot_[i];
  }
  // Sum of what read(session) returns.
  template <class Read>
  [[gnu::always_inline]] int read_hot(Read&& read) noexcept {
    int taken = 0;
    for (size_t i = hot_count_; i-- > 0;)
      if (i < hot_count_) taken += read(*hot_[i]);
    return taken;
  }
  // The session has spoken. Where the place is another one's that had less to say, that one is returned, and is not
  // hot any more.
  S* promote(S& session) noexcept {
    if (session.hot) return nullptr;
    S* coldest = nullptr;
    if (hot_count_ == hot_max) {
      coldest = *std::max_element(hot_.begin(), hot_.end(),
                                  [](const S* a, const S* b) { return a->silent < b->silent; });
      if (coldest->silent == 0) return nullptr;  // all are busy: epoll tells of this one
      demote(*coldest);
    }
    WEFT_ASSERT(hot_count_ < hot_max && !session.hot);
    session.hot = true;
    session.silent = 0;
    hot_[hot_count_++] = &session;
    return coldest;
  }
  void demote(S& session) noexcept {
    WEFT_ASSERT(session.hot && hot_count_ != 0);
    session.hot = false;
    const auto end = hot_.begin() + static_cast<std::ptrdiff_t>(hot_count_);
    if (std::remove(hot_.begin(), end, &session) != end) --hot_count_;
  }
  // While others are busy, a socket with nothing in it is not worth a system call in every poll.
  template <class Demoted>
  void demote_silent(Demoted&& demoted) noexcept {
    for (size_t i = hot_count_; i-- > 0;) {
      S& session = *hot_[i];
      if (session.silent < silent_polls_max) continue;
      demote(session);
      demoted(session);
    }
  }

  // --- dirty: written to since the last poll, or not all of it has left ---
  const std::vector<S*>& dirty() const noexcept { return dirty_; }
  void note_dirty(S& session) noexcept {
    WEFT_ASSERT(!session.dirty && dirty_.size() < dirty_.capacity());
    session.dirty = true;
    dirty_.push_back(&session);  // reserved
  }
  // flush(session): true when there is nothing left to write; then flushed(session).
  template <class Flush, class Flushed>
  void flush_dirty(Flush&& flush, Flushed&& flushed) noexcept {
    for (size_t i = dirty_.size(); i-- > 0;) {
      if (i >= dirty_.size()) continue;
      S& session = *dirty_[i];
      if (!flush(session)) continue;
      // flush() has not taken it out.
      WEFT_ASSERT(i < dirty_.size() && dirty_[i] == &session && session.dirty);
      session.dirty = false;
      dirty_[i] = dirty_.back();
      dirty_.pop_back();
      flushed(session);
    }
  }

  // --- stalled: with a frame that was refused ---
  bool has_stalled() const noexcept { return !stalled_.empty(); }
  void set_stalled(S& session, bool stalled) noexcept {
    if (session.stalled == stalled) return;
    WEFT_ASSERT(!stalled || stalled_.size() < stalled_.capacity());
    session.stalled = stalled;
    if (stalled) stalled_.push_back(&session);  // reserved
    else std::erase(stalled_, &session);
  }
  template <class Read>
  int read_stalled(Read&& read) noexcept {
    int taken = 0;
    for (size_t i = stalled_.size(); i-- > 0;)
      if (i < stalled_.size()) taken += read(*stalled_[i]);
    return taken;
  }

  // --- the others ---
  // A poll has taken so many frames: whether it should look at the other sessions, too.
  [[gnu::always_inline]] bool is_check_due(int taken) noexcept {
    if (taken != 0) {
      idle_polls_ = 0;
      if (++busy_polls_ >= busy_polls_per_check) return true;
    } else if (hot_count_ == 0 || ++idle_polls_ >= idle_polls_until_check_) {
      return true;
    }
    return clock_.now() - checked_at_ns_ >= check_interval_ns;
  }
  // Others that have nothing to say are asked less often.
  void checked(bool found) noexcept {
    idle_polls_until_check_ = found ? idle_polls_min : std::min(2 * idle_polls_until_check_, idle_polls_max);
    idle_polls_ = busy_polls_ = 0;
    checked_at_ns_ = clock_.now();
  }
  void check_soon() noexcept { idle_polls_ = idle_polls_max; }

 private:
  std::array<S*, hot_max> hot_{};
  size_t hot_count_ = 0;
  uint32_t idle_polls_ = 0;
  uint32_t idle_polls_until_check_ = idle_polls_min;
  uint32_t busy_polls_ = 0;
  uint64_t checked_at_ns_ = 0;
  Clock clock_;
  std::vector<S*> dirty_;
  std::vector<S*> stalled_;
};

}  // namespace weft::link::tcp
