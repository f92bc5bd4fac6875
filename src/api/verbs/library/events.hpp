// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The events of a context: completion channels, asynchronous events, and what keeps a queue from being destroyed while the program has
// events of it. One lock for all of it, a leaf: providers report events while they hold locks of their own. Must not know providers.
//
// Nothing here grows with the number of events. A CQ has a count of unread completion events. An asynchronous event of one type of one object
// is kept once while it is unread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <weft/verbs_provider.h>
#include "api/verbs/library/notice.hpp"
#include "api/verbs/library/semaphore.hpp"
#include "base/list.hpp"
#include "base/result.hpp"

namespace weft::verbs {

struct Channel;
struct Object;

// An asynchronous event that was not read.
struct Unread : ListHook {
  ibv_async_event event;
  Object* of;  // null: of a port, or of the device
};

// What the library keeps of a CQ, QP or SRQ besides the standard struct. In the list of its channel while it has unread completion events.
struct Object : ListHook {
  const void* address = nullptr;
  Channel* channel = nullptr;  // of a CQ
  uint32_t unread = 0;         // completion events that were not read
  uint32_t read = 0;           // completion events that were read, ever
  uint32_t async_read = 0;     // asynchronous events that were read, ever
  uint32_t async_unread = 0;   // bits of event types
  bool closing = false;        // its events are held back
  uint32_t users = 0;          // QPs and SRQs that use it
  std::array<Object*, 3> uses{};
};

// `shown` is what programs have.
struct Channel {
  ibv_comp_channel shown{};  // first
  // Readable while `ready` has something. Written after the lock was released, because the thread that wakes takes the lock.
  std::shared_ptr<const Notice> notice;
  bool is_signalled = false;  // and not yet accounted for by its reader
  List<Object> ready;         // the CQs with unread events, in the order of their first one
  explicit Channel(std::shared_ptr<const Notice> made) noexcept : notice(std::move(made)) {}
  static Channel& of(ibv_comp_channel* channel) noexcept { return *reinterpret_cast<Channel*>(channel); }
};

class Events {
 public:
  static Result<std::unique_ptr<Events>> create();
  explicit Events(Semaphore async) noexcept : async_(static_cast<Semaphore&&>(async)) {}
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events();

  int async_fd() const noexcept { return async_.fd(); }

  // Null and errno.
  ibv_comp_channel* create_channel(ibv_context* context) noexcept;
  int destroy_channel(Channel& channel) noexcept;  // EBUSY: it has CQs

  // An object of the provider was made. `uses`: the CQs and the SRQ that it keeps from being destroyed, or null. 0 or ENOMEM.
  int add(const void* object, Channel* channel = nullptr, std::array<const void*, 3> uses = {}) noexcept;
  // Destroying: begin(), wait until the counts are acknowledged, let the provider destroy, end(). EBUSY: it is used. EINVAL: not known.
  struct Leaving {
    Object* object = nullptr;
    uint32_t completion = 0, async = 0;  // events that the program has read, ever
  };
  int begin_destroy(const void* object, Leaving* leaving) noexcept;
  // `gone`: the provider has destroyed it; another may have its address already. Otherwise the events that were held back are there again.
  void end_destroy(const Leaving& leaving, bool gone) noexcept;

  // What providers report. Any thread, under any lock of theirs.
  void completion(ibv_cq* cq) noexcept;
  void async(const ibv_async_event& event) noexcept;

  // 0, or -1 and errno. Any thread. `ops`: of the context, where the provider can sleep instead of the channel's descriptor.
  int next_completion(Channel& channel, ibv_cq** cq, void** cq_context,
                      const weft_verbs_ops* ops = nullptr) noexcept;
  int next_async(ibv_async_event* event) noexcept;

 private:
  Object* find(const void* object) noexcept;  // with the lock
  // With the lock; the notice that the caller gives when it has released it, or null.
  static std::shared_ptr<const Notice> pending_notice(Channel& channel) noexcept;
  bool pop_completion(Channel& channel, ibv_cq** cq, void** cq_context) noexcept;
  // False and errno. True: there may be an event.
  bool sleep(Channel& channel, const weft_verbs_ops* ops) noexcept;
  // Without the lock, and without a channel that may be gone: gives it, and takes it back where its event was taken meanwhile.
  void signal(const std::shared_ptr<const Notice>& notice, Channel* channel) noexcept;
  void hold_back(Object& object) noexcept;
  std::shared_ptr<const Notice> release_held(Object& object) noexcept;
  void forget(Object& object) noexcept;
  void queue(const ibv_async_event& event, Object* of, uint32_t& unread) noexcept;

  std::mutex lock_;
  // By address, for the standard structs have no room for more.
  std::unordered_map<const void*, std::unique_ptr<Object>> objects_;
  // Closing, and their address is another object's already.
  std::unordered_map<const Object*, std::unique_ptr<Object>> replaced_;
  Semaphore async_;
  List<Unread> unread_;
  List<Unread> held_;  // of objects that are closing
  std::array<uint32_t, 256> port_unread_{};
  std::unordered_map<Channel*, std::unique_ptr<Channel>> channels_;
};

}  // namespace weft::verbs
