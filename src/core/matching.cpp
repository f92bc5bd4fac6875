// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The slower half of matching: receives with ignore bits, receives from named sources, and arrived messages.
#include "core/matching.hpp"

#include "base/assert.hpp"

namespace weft::core {

namespace {

PostedBase* older(PostedBase* a, PostedBase* b) noexcept {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  return a->order < b->order ? a : b;
}

}  // namespace

PostedBase* TagMatcher::peek_arrival_mixed(uint64_t tag, uint64_t source) const noexcept {
  PostedBase* best = exact_.size() == directed_ ? nullptr : oldest_exact(tag, any_source);
  if (directed_ != 0 && source != any_source) best = older(best, oldest_exact(tag, source));
  if (masked_count_ == 0) return best;
  // The list is in posting order, so the search ends at the first receive that is younger than the best so
  // far.
  const uint64_t limit = best == nullptr ? UINT64_MAX : best->order;
  PostedBase* masked = masked_.find(
      [=](const PostedBase& receive) { return receive.order > limit || receive.accepts(tag, source); });
  return older(best, masked);
}

bool TagMatcher::remove(PostedBase& receive) noexcept {
  if (!receive.posted()) return false;
  take(receive);
  return true;
}

void TagMatcher::add_unexpected(UnexpectedBase& message) noexcept {
  WEFT_ASSERT(!message.unexpected());
  message.order = ++messages_;
  arrivals_.push_back(message);
  by_tag_.push(message);
  by_source_.push(message);
  WEFT_ASSERT(by_tag_.size() == by_source_.size());
}

UnexpectedBase* TagMatcher::find_unexpected(uint64_t tag, uint64_t ignore, uint64_t source) const noexcept {
  if (ignore != 0) {
    return arrivals_.find([=](const UnexpectedBase& message) {
      return ((message.tag ^ tag) & ~ignore) == 0 && (source == any_source || message.source == source);
    });
  }
  if (source == any_source) {
    return by_tag_.list_at(hash_word(tag, by_tag_.seed())).find([=](const UnexpectedBase& message) {
      return message.tag == tag;
    });
  }
  return by_source_.list_at(hash_pair(tag, source, by_source_.seed()))
      .find([=](const UnexpectedBase& message) { return message.tag == tag && message.source == source; });
}

void TagMatcher::remove(UnexpectedBase& message) noexcept {
  WEFT_ASSERT(message.unexpected() && message.order <= messages_);
  arrivals_.remove(message);
  by_tag_.remove(message);
  by_source_.remove(message);
  WEFT_ASSERT(by_tag_.size() == by_source_.size() && arrivals_.empty() == (by_tag_.size() == 0));
}

void TagMatcher::set_source(UnexpectedBase& message, uint64_t source) noexcept {
  WEFT_ASSERT(message.unexpected());
  by_source_.remove(message);
  message.source = source;
  by_source_.insert(message);
}

PostedBase* MsgMatcher::older_directed(PostedBase* open, uint64_t source) const noexcept {
  if (source == any_source) return open;
  PostedBase* directed =
      directed_.list_at(hash_word(source, directed_.seed())).find([=](const PostedBase& receive) {
        return receive.source == source;
      });
  return older(open, directed);
}

bool MsgMatcher::remove(PostedBase& receive) noexcept {
  if (!receive.posted()) return false;
  take(receive);
  return true;
}

void MsgMatcher::add_unexpected(UnexpectedBase& message) noexcept {
  WEFT_ASSERT(!message.unexpected());
  message.order = ++messages_;
  arrivals_.push_back(message);
  by_source_.push(message);
}

UnexpectedBase* MsgMatcher::oldest_from(uint64_t source) const noexcept {
  return by_source_.list_at(hash_word(source, by_source_.seed())).find([=](const UnexpectedBase& message) {
    return message.source == source;
  });
}

void MsgMatcher::remove(UnexpectedBase& message) noexcept {
  WEFT_ASSERT(message.unexpected() && message.order <= messages_);
  arrivals_.remove(message);
  by_source_.remove(message);
  WEFT_ASSERT(arrivals_.empty() == (by_source_.size() == 0));
}

void MsgMatcher::set_source(UnexpectedBase& message, uint64_t source) noexcept {
  WEFT_ASSERT(message.unexpected());
  by_source_.remove(message);
  message.source = source;
  by_source_.insert(message);
}

}  // namespace weft::core
