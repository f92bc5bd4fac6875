// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the data path and the extended calls share: completions as struct ibv_wc has them, posting of one request.
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include "api/verbs/roce/objects.hpp"

namespace weft::verbs::soft {

// ibv_sge and Element are the same 16 bytes.
static_assert(sizeof(ibv_sge) == sizeof(roce::Element) &&
              offsetof(ibv_sge, addr) == offsetof(roce::Element, address) &&
              offsetof(ibv_sge, length) == offsetof(roce::Element, length) &&
              offsetof(ibv_sge, lkey) == offsetof(roce::Element, key));
inline std::span<const roce::Element> elements_of(const ibv_sge* list, size_t count) noexcept {
  return {reinterpret_cast<const roce::Element*>(list), count};
}

inline uint32_t immediate_of(const roce::Completion& c) noexcept {
  return (c.flags & roce::with_immediate) != 0 ? htobe32(c.immediate) : c.immediate;
}

// The next completion of the queue, after a poll of the device if there is none. As CompletionQueue::poll(). With the
// device's lock.
inline int next_completion(Cq& cq, roce::Completion& out) noexcept {
  const int taken = cq.queue->poll({&out, 1});
  if (taken != 0) {
    cq.instance->device().polled();
    return taken;
  }
  (void)cq.instance->device().poll();
  return cq.queue->poll({&out, 1});
}

inline void set_bind(roce::SendRequest& to, const ibv_mw& mw, uint32_t rkey,
                     const ibv_mw_bind_info& info) noexcept {
  to.opcode = roce::SendOpcode::BindWindow;
  to.remote_key = (mw.rkey & ~0xffu) | (rkey & 0xff);  // the window keeps its index
  to.bind = {mw.rkey, info.mr == nullptr ? 0 : info.mr->lkey, info.addr, info.length, info.mw_access_flags};
}

}  // namespace weft::verbs::soft
