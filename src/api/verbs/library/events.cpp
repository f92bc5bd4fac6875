// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/verbs/library/events.hpp"

#include <cerrno>
#include <csignal>
#include <new>

#include "api/verbs/library/log.hpp"
#include "os/signals.hpp"

namespace weft::verbs {
namespace {

// Whose event it is; null: a port's, or the device's.
const void* owner(const ibv_async_event& event) noexcept {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq;
    case IBV_EVENT_WQ_FATAL:
      return event.element.wq;
    default:
      return nullptr;
  }
}

// The channel whose events this thread waits for inside a provider: it looks at the list itself, so it needs no notice of what it
// raises.
thread_local const Channel* taker = nullptr;

constexpr uint32_t bit(ibv_event_type type) noexcept { return 1U << (static_cast<unsigned>(type) % 32); }

}  // namespace

Result<std::unique_ptr<Events>> Events::create() {
  auto async = Semaphore::create();
  if (!async) return async.error();
  return std::make_unique<Events>(static_cast<Semaphore&&>(*async));
}

Events::~Events() {
  while (Unread* event = unread_.pop_front()) delete event;
  while (Unread* event = held_.pop_front()) delete event;
}

ibv_comp_channel* Events::create_channel(ibv_context* context) noexcept {
  auto notice = Notice::create();
  if (!notice) {
    errno = notice.error().code;
    return nullptr;
  }
  try {
    auto made = std::make_unique<Channel>(std::make_shared<const Notice>(static_cast<Notice&&>(*notice)));
    made->shown = {context, made->notice->fd(), 0};
    Channel* channel = made.get();
    const std::lock_guard guard(lock_);
    channels_.emplace(channel, std::move(made));
    return &channel->shown;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

int Events::destroy_channel(Channel& channel) noexcept {
  const std::lock_guard guard(lock_);
  if (channel.shown.refcnt != 0) return EBUSY;
  return channels_.erase(&channel) == 1 ? 0 : EINVAL;
}

int Events::add(const void* address, Channel* channel, std::array<const void*, 3> uses) noexcept {
  try {
    auto made = std::make_unique<Object>();
    made->address = address;
    made->channel = channel;
    const std::lock_guard guard(lock_);
    for (size_t i = 0; i < uses.size(); ++i) made->uses[i] = uses[i] != nullptr ? find(uses[i]) : nullptr;
    std::unique_ptr<Object>& place = objects_[address];
    if (place != nullptr) replaced_[place.get()] = nullptr;  // may throw; the address stays the old one's
    if (place != nullptr) replaced_[place.get()] = std::move(place);
    place = std::move(made);
    for (Object* used : place->uses) {
      if (used != nullptr) ++used->users;
    }
    if (channel != nullptr) ++channel->shown.refcnt;
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

Object* Events::find(const void* address) noexcept {
  const auto at = objects_.find(address);
  return at != objects_.end() ? at->second.get() : nullptr;  // null: add() ran out of memory
}

int Events::begin_destroy(const void* address, Leaving* leaving) noexcept {
  const std::lock_guard guard(lock_);
  Object* object = find(address);
  if (object == nullptr) return EINVAL;
  if (object->users != 0 || object->closing) return EBUSY;
  hold_back(*object);
  *leaving = {object, object->read, object->async_read};
  return 0;
}

void Events::end_destroy(const Leaving& leaving, bool gone) noexcept {
  std::unique_lock guard(lock_);
  if (gone) return forget(*leaving.object);
  Channel* const channel = leaving.object->channel;
  const auto notice = release_held(*leaving.object);
  guard.unlock();
  signal(notice, channel);
}

std::shared_ptr<const Notice> Events::pending_notice(Channel& channel) noexcept {
  if (channel.is_signalled || channel.ready.empty()) return nullptr;
  channel.is_signalled = true;
  return channel.notice;
}

void Events::signal(const std::shared_ptr<const Notice>& notice, Channel* channel) noexcept {
  if (notice == nullptr) return;
  notice->signal();
  const std::lock_guard guard(lock_);
  const auto place = channels_.find(channel);
  if (place == channels_.end() || channel->notice != notice) return;
  if (channel->ready.empty() && channel->is_signalled && notice->consume()) channel->is_signalled = false;
}

void Events::hold_back(Object& object) noexcept {
  object.closing = true;
  if (object.linked()) {
    object.unlink();
    // Not there: a thread has read it and waits for the lock, or is about to give it. That reader finds nothing.
    Channel& channel = *object.channel;
    if (channel.ready.empty() && channel.is_signalled && channel.notice->consume())
      channel.is_signalled = false;
  }
  unread_.for_each([&](Unread& event) {
    if (event.of != &object) return;
    event.unlink();
    held_.push_back(event);
    async_.acquire(1);
  });
}

std::shared_ptr<const Notice> Events::release_held(Object& object) noexcept {
  object.closing = false;
  held_.for_each([&](Unread& event) {
    if (event.of != &object) return;
    event.unlink();
    unread_.push_back(event);
    async_.post();
  });
  if (object.unread == 0) return nullptr;
  object.channel->ready.push_back(object);
  return pending_notice(*object.channel);
}

void Events::forget(Object& object) noexcept {
  held_.for_each([&](Unread& event) {
    if (event.of != &object) return;
    event.unlink();
    delete &event;
  });
  for (Object* used : object.uses) {
    if (used != nullptr) --used->users;
  }
  if (object.channel != nullptr) --object.channel->shown.refcnt;
  if (replaced_.erase(&object) == 0) objects_.erase(object.address);
}

void Events::completion(ibv_cq* cq) noexcept {
  std::unique_lock guard(lock_);
  Object* object = find(cq);
  if (object == nullptr || object->channel == nullptr) return;
  ++object->unread;
  if (object->closing) return;
  if (!object->linked()) object->channel->ready.push_back(*object);
  Channel* const channel = object->channel;
  if (taker == channel) return;
  const auto notice = pending_notice(*channel);
  guard.unlock();
  signal(notice, channel);
}

void Events::async(const ibv_async_event& event) noexcept {
  const std::lock_guard guard(lock_);
  const void* whose = owner(event);
  if (whose == nullptr) {
    queue(event, nullptr, port_unread_[static_cast<uint8_t>(event.element.port_num)]);
  } else if (Object* object = find(whose)) {
    queue(event, object, object->async_unread);
  }
}

void Events::queue(const ibv_async_event& event, Object* of, uint32_t& unread) noexcept {
  if ((unread & bit(event.event_type)) != 0) return;
  auto* made = new (std::nothrow) Unread{{}, event, of};
  if (made == nullptr) {
    log(Level::Error, "no memory for an asynchronous event; it is lost");
    return;
  }
  unread |= bit(event.event_type);
  if (of != nullptr && of->closing) {
    held_.push_back(*made);
    return;
  }
  unread_.push_back(*made);
  async_.post();
}

bool Events::pop_completion(Channel& channel, ibv_cq** cq, void** cq_context) noexcept {
  std::unique_lock guard(lock_);
  Object* object = channel.ready.pop_front();
  if (object == nullptr) return false;
  if (--object->unread != 0) channel.ready.push_back(*object);
  ++object->read;
  *cq = static_cast<ibv_cq*>(const_cast<void*>(object->address));
  *cq_context = (*cq)->cq_context;
  // A notice that is not there yet is one too many; its reader finds nothing.
  if (channel.ready.empty() && channel.is_signalled && channel.notice->consume())
    channel.is_signalled = false;
  const auto notice = pending_notice(channel);
  guard.unlock();
  signal(notice, &channel);
  return true;
}

namespace {

// Blocks the signals of this thread that come from elsewhere, and has its mask of before.
class SignalsBlocked {
 public:
  explicit SignalsBlocked(bool blocks) noexcept : blocks_(blocks) {
    if (!blocks_) return;
    sigset_t all;
    ::sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) ::sigdelset(&all, own);
    blocks_ = ::pthread_sigmask(SIG_BLOCK, &all, &before_) == 0;
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() {
    if (blocks_) ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  const sigset_t* before() const noexcept { return blocks_ ? &before_ : nullptr; }

 private:
  bool blocks_;
  sigset_t before_;
};

}  // namespace

bool Events::sleep(Channel& channel, const weft_verbs_ops* ops) noexcept {
  // Other system calls than read(2) are not restarted for handlers with SA_RESTART, so a provider sleeps only where all handlers
  // are of one kind.
  const os::Restarts kind = ops != nullptr && ops->wait_event != nullptr && channel.notice->blocks()
                                ? os::restarts_lately()
                                : os::Restarts::Mixed;
  if (kind != os::Restarts::Mixed) {
    struct Awaited {
      Events& events;
      Channel& channel;
      static int is_there(void* of) noexcept {
        const auto& self = *static_cast<const Awaited*>(of);
        const std::lock_guard guard(self.events.lock_);
        return self.channel.ready.empty() ? 0 : 1;
      }
    } awaited{*this, channel};
    // Handlers run while it sleeps alone: they may call fork(2) or verbs, which take the provider's locks, and one without
    // SA_RESTART has to end the call.
    int code;
    {
      const SignalsBlocked signals(kind != os::Restarts::NoHandler);
      taker = &channel;
      code = ops->wait_event(channel.shown.context, channel.notice->fd(), Awaited::is_there, &awaited,
                             signals.before());
      taker = nullptr;
    }
    if (code == 0) {
      const std::lock_guard guard(lock_);
      if (channel.ready.empty() && channel.notice->consume()) channel.is_signalled = false;
      return true;
    }
    if (code == EINTR) {
      const os::Restarts now = os::restarts();
      const bool goes_on = now == os::Restarts::NoHandler || now == os::Restarts::All ||
                           (now == os::Restarts::Mixed && kind == os::Restarts::All);
      if (goes_on || Awaited::is_there(&awaited) != 0) return true;
      errno = EINTR;
      return false;
    }
  }
  if (!channel.notice->wait()) return false;
  const std::lock_guard guard(lock_);
  channel.is_signalled = false;
  return true;
}

int Events::next_completion(Channel& channel, ibv_cq** cq, void** cq_context,
                            const weft_verbs_ops* ops) noexcept {
  taker = nullptr;  // a signal handler has left the last call by siglongjmp(3), perhaps
  // What cannot be taken without sleeping is read first.
  if (!channel.notice->can_consume() && !sleep(channel, nullptr)) return -1;
  while (!pop_completion(channel, cq, cq_context))
    if (!sleep(channel, channel.notice->can_consume() ? ops : nullptr)) return -1;
  return 0;
}

int Events::next_async(ibv_async_event* event) noexcept {
  while (async_.wait()) {
    const std::lock_guard guard(lock_);
    const std::unique_ptr<Unread> first(unread_.pop_front());
    if (first == nullptr) continue;
    *event = first->event;
    uint32_t& unread = first->of != nullptr ? first->of->async_unread
                                            : port_unread_[static_cast<uint8_t>(event->element.port_num)];
    unread &= ~bit(event->event_type);
    if (first->of != nullptr) ++first->of->async_read;
    return 0;
  }
  return -1;
}

}  // namespace weft::verbs
