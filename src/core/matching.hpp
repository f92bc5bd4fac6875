// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Matching of posted receives with arrived messages: fi_tagged(3), fi_msg(3), and FI_DIRECTED_RECV of
// fi_getinfo(3). Allocates only to widen its hash tables. Must not know frames, links, payloads or
// completions: the engine derives its own types from PostedBase and UnexpectedBase and owns them. Not
// thread-safe: the endpoint's lock (or its absence) covers it.
//
// The rules, for both matchers:
//   an arrival takes the oldest posted receive that accepts it: exact and wildcard receives share one order;
//   a receive takes the oldest arrived message that it accepts;
//   any_source in a receive accepts every source; any_source in a message (a sender unknown to the address
//   vector) is accepted by such receives only;
//   tags match when they are equal outside the receive's ignore bits (fi_tagged(3)).
//
// The caller's order: search the arrived messages first (match_posted), and post only when there was none; on
// arrival search the posted receives first (match_arrival), and add_unexpected only when there was none.
//
// Cost: O(1) on average for receives without ignore bits, whatever the mix of tags and sources, with up to
// about 100,000 outstanding (beyond, the lists of the hash tables grow longer). A receive with ignore bits is
// found, and searches the arrived messages, linearly.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "base/assert.hpp"
#include "base/hash.hpp"
#include "base/list.hpp"

namespace weft::core {

// FI_ADDR_UNSPEC of a receive, FI_ADDR_NOTAVAIL of a message.
inline constexpr uint64_t any_source = FI_ADDR_UNSPEC;

using PostedHook = NamedHook<struct PostedName>;

// A posted receive. The engine sets tag, ignore and source before post() and leaves them alone until it is
// matched or removed.
struct PostedBase : PostedHook {
  uint64_t tag = 0;              // without meaning in MsgMatcher
  uint64_t ignore = 0;           // bits of the tag that do not count
  uint64_t source = any_source;  // fi_addr_t
  uint64_t order = 0;            // set by post(): smaller is older

  bool posted() const noexcept { return linked(); }
  bool accepts(uint64_t message_tag, uint64_t message_source) const noexcept {
    return ((message_tag ^ tag) & ~ignore) == 0 && (source == any_source || source == message_source);
  }
};

using ArrivalHook = NamedHook<struct ArrivalName>;
using ArrivalTagHook = NamedHook<struct ArrivalTagName>;
using ArrivalSourceHook = NamedHook<struct ArrivalSourceName>;

// An arrived message that no receive has taken. The engine sets tag and source before add_unexpected().
struct UnexpectedBase : ArrivalHook, ArrivalTagHook, ArrivalSourceHook {
  uint64_t tag = 0;              // without meaning in MsgMatcher
  uint64_t source = any_source;  // fi_addr_t
  uint64_t order = 0;            // set by add_unexpected(): smaller is older

  bool unexpected() const noexcept { return ArrivalHook::linked(); }
};

namespace detail {

// What an object is found by.
struct ByTag {
  static uint64_t hash(const auto& item, uint64_t seed) noexcept { return hash_word(item.tag, seed); }
};
struct BySource {
  static uint64_t hash(const auto& item, uint64_t seed) noexcept { return hash_word(item.source, seed); }
};
struct ByTagAndSource {
  static uint64_t hash(const auto& item, uint64_t seed) noexcept {
    return hash_pair(item.tag, item.source, seed);
  }
};

// Hash table of lists; objects of one key stand in one list in the order of insertion. The engine's types
// stay in place, the table only links them. Starts without allocation and widens at an average of two objects
// per list, up to lists_max; when memory is out it goes on with what it has.
template <class T, class Hook, class Key, size_t inline_lists>
class HashedLists {
  static_assert((inline_lists & (inline_lists - 1)) == 0);

 public:
  using Bucket = List<T, Hook>;
  static constexpr size_t lists_max = size_t{1} << 16;

  explicit HashedLists(uint64_t seed) noexcept : seed_(seed) {}

  size_t size() const noexcept { return size_; }
  uint64_t seed() const noexcept { return seed_; }

  // Adds the youngest.
  void push(T& item) noexcept {
    if (size_ >= grow_at_) [[unlikely]]
      grow();
    list_at(Key::hash(item, seed_)).push_back(item);
    ++size_;
  }

  // The same in two steps, for a caller that knows the hash; only when has_room().
  bool has_room() const noexcept { return size_ < grow_at_; }
  void push_into(uint64_t hash, T& item) noexcept {
    WEFT_ASSERT(has_room());
    list_at(hash).push_back(item);
    ++size_;
  }

  // Adds one that is not the youngest.
  void insert(T& item) noexcept {
    list_at(Key::hash(item, seed_)).insert_sorted(item, [](const T& a, const T& b) {
      return a.order < b.order;
    });
    ++size_;
  }

  void remove(T& item) noexcept {
    WEFT_ASSERT(size_ != 0 && Bucket::linked(item));
    Bucket::remove(item);
    --size_;
  }

  // The list that all objects with this hash are in, among others.
  Bucket& list_at(uint64_t hash) const noexcept { return lists_[hash & mask_]; }

  template <class Fn>
  void for_each(Fn&& fn) {
    for (size_t i = 0; i <= mask_; ++i) lists_[i].for_each(fn);
  }

 private:
  [[gnu::noinline, gnu::cold]] void grow() noexcept {
    const size_t lists = 4 * (mask_ + 1);
    WEFT_ASSERT((lists & (lists - 1)) == 0);
    std::unique_ptr<Bucket[]> wider(lists <= lists_max ? new (std::nothrow) Bucket[lists] : nullptr);
    if (!wider) {
      grow_at_ = SIZE_MAX;
      return;
    }
    for (size_t i = 0; i <= mask_; ++i) {
      while (T* item = lists_[i].pop_front()) wider[Key::hash(*item, seed_) & (lists - 1)].push_back(*item);
    }
    wide_ = std::move(wider);
    lists_ = wide_.get();
    mask_ = lists - 1;
    grow_at_ = 2 * lists;
  }

  Bucket* lists_ = inline_;
  size_t mask_ = inline_lists - 1;
  size_t size_ = 0;
  size_t grow_at_ = 2 * inline_lists;
  uint64_t seed_;
  std::unique_ptr<Bucket[]> wide_;
  Bucket inline_[inline_lists];
};

template <class Matcher, class Predicate>
PostedBase* oldest_posted(Matcher& matcher, Predicate& is_it) {
  PostedBase* oldest = nullptr;
  matcher.for_each_posted([&](PostedBase& receive) {
    if (is_it(std::as_const(receive)) && (oldest == nullptr || receive.order < oldest->order))
      oldest = &receive;
  });
  return oldest;
}

}  // namespace detail

class TagMatcher {
 public:
  // `seed` spreads the hash; a random one keeps peers from choosing tags that collide.
  explicit TagMatcher(uint64_t seed = hash_factor_b) noexcept
      : exact_(seed), by_tag_(seed), by_source_(seed) {}
  TagMatcher(const TagMatcher&) = delete;
  TagMatcher& operator=(const TagMatcher&) = delete;

  // Makes `receive` the youngest posted one. The arrived messages have been searched.
  void post(PostedBase& receive) noexcept {
    receive.order = ++posts_;
    if (receive.ignore != 0) [[unlikely]] {
      masked_.push_back(receive);
      ++masked_count_;
      return;
    }
    exact_.push(receive);
    directed_ += receive.source != any_source;
  }

  // --- the usual case, in fewer steps: no receive has ignore bits or names a source; or, as over MPI, all have ignore bits ---
  // True: post_plain() may be called, once, without searching the arrived messages.
  bool has_room_and_no_arrivals() const noexcept { return arrivals_.empty() && exact_.has_room(); }
  // post() of a receive with ignore 0 from any_source.
  void post_plain(PostedBase& receive) noexcept {
    WEFT_ASSERT(has_room_and_no_arrivals() && receive.ignore == 0 && receive.source == any_source);
    receive.order = ++posts_;
    exact_.push_into(hash_pair(receive.tag, any_source, exact_.seed()), receive);
  }
  // The receive that match_arrival() would take for a message of a known source. Null: match_arrival() may know better.
  PostedBase* first_plain(uint64_t tag, uint64_t source) const noexcept {
    if ((masked_count_ | directed_) != 0) [[unlikely]]
      return first_masked(tag, source);
    return exact_.list_at(hash_pair(tag, any_source, exact_.seed())).find([=](const PostedBase& receive) {
      return receive.tag == tag;
    });
  }
  void take_plain(PostedBase& receive) noexcept { take(receive); }

  // Takes out the oldest receive that accepts this message, or null.
  PostedBase* match_arrival(uint64_t tag, uint64_t source) noexcept {
    PostedBase* found = peek_arrival(tag, source);
    if (found != nullptr) take(*found);
    return found;
  }

  // The same without taking it out.
  PostedBase* peek_arrival(uint64_t tag, uint64_t source) const noexcept {
    // The common cases are one probe: no receive names a source, or every receive does.
    if (masked_count_ == 0) [[likely]] {
      if (directed_ == 0) return oldest_exact(tag, any_source);
      if (directed_ == exact_.size()) return oldest_exact(tag, source);
    }
    return peek_arrival_mixed(tag, source);
  }

  // Keeps a message that no posted receive accepts.
  void add_unexpected(UnexpectedBase& message) noexcept;

  // Takes out the oldest message that a receive with these fields accepts, or null.
  UnexpectedBase* match_posted(uint64_t tag, uint64_t ignore, uint64_t source) noexcept {
    if (arrivals_.empty()) [[likely]]
      return nullptr;
    UnexpectedBase* found = find_unexpected(tag, ignore, source);
    if (found != nullptr) remove(*found);
    return found;
  }

  // The same without taking it out: FI_PEEK of fi_tagged(3). With FI_CLAIM or FI_DISCARD the engine calls
  // remove().
  UnexpectedBase* peek(uint64_t tag, uint64_t ignore, uint64_t source) const noexcept {
    if (arrivals_.empty()) [[likely]]
      return nullptr;
    return find_unexpected(tag, ignore, source);
  }

  // Takes out a message that is in.
  void remove(UnexpectedBase& message) noexcept;

  // Takes out a receive: cancel. False when it is not posted.
  bool remove(PostedBase& receive) noexcept;

  // Changes the source of an arrived message, which keeps its place in the order: after its sender was
  // inserted into or removed from the address vector.
  void set_source(UnexpectedBase& message, uint64_t source) noexcept;

  // The oldest posted receive for which `is_it(const PostedBase&)` holds, or null: fi_cancel(3) by context.
  template <class Predicate>
  PostedBase* find_posted(Predicate&& is_it) {
    return detail::oldest_posted(*this, is_it);
  }

  // Calls fn(PostedBase&) for each posted receive, in no order. fn may remove the receive that it was given.
  template <class Fn>
  void for_each_posted(Fn&& fn) {
    exact_.for_each(fn);
    masked_.for_each(fn);
  }

  // Calls fn(UnexpectedBase&) for each arrived message, oldest first. fn may remove the message that it was
  // given.
  template <class Fn>
  void for_each_unexpected(Fn&& fn) {
    arrivals_.for_each(fn);
  }

  size_t posted_count() const noexcept { return exact_.size() + masked_count_; }
  size_t unexpected_count() const noexcept { return by_tag_.size(); }
  bool empty() const noexcept { return posted_count() == 0 && arrivals_.empty(); }

 private:
  PostedBase* oldest_exact(uint64_t tag, uint64_t source) const noexcept {
    return exact_.list_at(hash_pair(tag, source, exact_.seed())).find([=](const PostedBase& receive) {
      return receive.tag == tag && receive.source == source;
    });
  }
  void take(PostedBase& receive) noexcept {
    WEFT_ASSERT(receive.posted() && receive.order <= posts_);
    if (receive.ignore != 0) [[unlikely]] {
      WEFT_ASSERT(masked_count_ != 0);
      masked_.remove(receive);
      --masked_count_;
      return;
    }
    WEFT_ASSERT(receive.source == any_source || directed_ != 0);
    exact_.remove(receive);
    directed_ -= receive.source != any_source;
    WEFT_ASSERT(directed_ <= exact_.size());
  }
  // Of receives that all have ignore bits the oldest, if it accepts the message, is the one.
  PostedBase* first_masked(uint64_t tag, uint64_t source) const noexcept {
    if (exact_.size() == 0) {
      PostedBase* oldest = masked_.front();
      if (oldest != nullptr && oldest->accepts(tag, source)) return oldest;
    }
    return peek_arrival_mixed(tag, source);
  }
  PostedBase* peek_arrival_mixed(uint64_t tag, uint64_t source) const noexcept;
  UnexpectedBase* find_unexpected(uint64_t tag, uint64_t ignore, uint64_t source) const noexcept;

  size_t masked_count_ = 0;  // receives with ignore bits
  size_t directed_ = 0;      // receives in exact_ that name a source
  uint64_t posts_ = 0;
  uint64_t messages_ = 0;
  List<UnexpectedBase, ArrivalHook> arrivals_;
  List<PostedBase, PostedHook> masked_;
  // any_source counts as a source of its own here.
  detail::HashedLists<PostedBase, PostedHook, detail::ByTagAndSource, 256> exact_;
  detail::HashedLists<UnexpectedBase, ArrivalTagHook, detail::ByTag, 64> by_tag_;
  detail::HashedLists<UnexpectedBase, ArrivalSourceHook, detail::ByTagAndSource, 64> by_source_;
};

// Untagged messages: the same with sources only. A multi-receive buffer (FI_MULTI_RECV, fi_msg(3)) is used
// with peek_arrival() and stays the oldest until the engine removes it.
class MsgMatcher {
 public:
  explicit MsgMatcher(uint64_t seed = hash_factor_b) noexcept : directed_(seed), by_source_(seed) {}
  MsgMatcher(const MsgMatcher&) = delete;
  MsgMatcher& operator=(const MsgMatcher&) = delete;

  // Makes `receive` the youngest posted one. The arrived messages have been searched.
  void post(PostedBase& receive) noexcept {
    receive.order = ++posts_;
    if (receive.source != any_source) [[unlikely]] {
      directed_.push(receive);
      return;
    }
    open_.push_back(receive);
    ++open_count_;
  }

  // The oldest receive that accepts a message from this source, left where it is, or null.
  PostedBase* peek_arrival(uint64_t source) const noexcept {
    PostedBase* oldest = open_.front();
    return directed_.size() == 0 ? oldest : older_directed(oldest, source);
  }

  // Takes it out.
  PostedBase* match_arrival(uint64_t source) noexcept {
    PostedBase* found = peek_arrival(source);
    if (found != nullptr) take(*found);
    return found;
  }

  // Keeps a message that no posted receive accepts.
  void add_unexpected(UnexpectedBase& message) noexcept;

  // Takes out the oldest message that a receive from this source accepts, or null.
  UnexpectedBase* match_posted(uint64_t source) noexcept {
    UnexpectedBase* found = peek(source);
    if (found != nullptr) remove(*found);
    return found;
  }

  // The same without taking it out.
  UnexpectedBase* peek(uint64_t source) const noexcept {
    if (arrivals_.empty()) [[likely]]
      return nullptr;
    return source == any_source ? arrivals_.front() : oldest_from(source);
  }

  // Takes out a message that is in.
  void remove(UnexpectedBase& message) noexcept;

  // Takes out a receive: cancel, or the end of a multi-receive buffer. False when it is not posted.
  bool remove(PostedBase& receive) noexcept;

  // Changes the source of an arrived message, which keeps its place in the order.
  void set_source(UnexpectedBase& message, uint64_t source) noexcept;

  // The oldest posted receive for which `is_it(const PostedBase&)` holds, or null: fi_cancel(3) by context.
  template <class Predicate>
  PostedBase* find_posted(Predicate&& is_it) {
    return detail::oldest_posted(*this, is_it);
  }

  // Calls fn(PostedBase&) for each posted receive, in no order. fn may remove the receive that it was given.
  template <class Fn>
  void for_each_posted(Fn&& fn) {
    open_.for_each(fn);
    directed_.for_each(fn);
  }

  // Calls fn(UnexpectedBase&) for each arrived message, oldest first. fn may remove the message that it was
  // given.
  template <class Fn>
  void for_each_unexpected(Fn&& fn) {
    arrivals_.for_each(fn);
  }

  size_t posted_count() const noexcept { return open_count_ + directed_.size(); }
  size_t unexpected_count() const noexcept { return by_source_.size(); }
  bool empty() const noexcept { return posted_count() == 0 && arrivals_.empty(); }

 private:
  void take(PostedBase& receive) noexcept {
    WEFT_ASSERT(receive.posted() && receive.order <= posts_);
    if (receive.source != any_source) [[unlikely]]
      return directed_.remove(receive);
    WEFT_ASSERT(open_count_ != 0);
    List<PostedBase, PostedHook>::remove(receive);
    --open_count_;
  }
  PostedBase* older_directed(PostedBase* open, uint64_t source) const noexcept;
  UnexpectedBase* oldest_from(uint64_t source) const noexcept;

  List<PostedBase, PostedHook> open_;  // receives from any source
  size_t open_count_ = 0;
  uint64_t posts_ = 0;
  uint64_t messages_ = 0;
  List<UnexpectedBase, ArrivalHook> arrivals_;
  detail::HashedLists<PostedBase, PostedHook, detail::BySource, 64> directed_;
  detail::HashedLists<UnexpectedBase, ArrivalSourceHook, detail::BySource, 64> by_source_;
};

}  // namespace weft::core
