// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Shared receive queues with their limit event, and completion events: any and solicited.
#include <poll.h>

#include "scenarios.hpp"

namespace weft::vm {
namespace {

bool readable(int fd, int wait_ms) {
  pollfd wait{fd, POLLIN, 0};
  return poll(&wait, 1, wait_ms) == 1;
}

// A PD, an SRQ on it and a CQ for several pairs; only the responder has the SRQ.
struct Shared {
  explicit Shared(Session& s)
      : pd(owned(ibv_alloc_pd(s.context), "ibv_alloc_pd")),
        cq(owned(ibv_create_cq(s.context, 256, nullptr, nullptr, 0), "ibv_create_cq")) {
    ibv_srq_init_attr init{};
    init.attr.max_wr = 64;
    init.attr.max_sge = 2;
    if (!s.is_requester) srq = owned(ibv_create_srq(pd.get(), &init), "ibv_create_srq");
  }
  PairOptions options() const {
    PairOptions o;
    o.pd = pd.get();
    o.srq = srq.get();
    o.receive_cq = cq.get();
    return o;
  }
  void receive(const ibv_sge& to, uint64_t id) const {
    ibv_recv_wr r{}, *bad = nullptr;
    r.wr_id = id;
    r.sg_list = const_cast<ibv_sge*>(&to);
    r.num_sge = 1;
    const int result = ibv_post_srq_recv(srq.get(), &r, &bad);
    require(result == 0, "ibv_post_srq_recv: %d", result);
  }

  Owned<ibv_pd> pd;
  Owned<ibv_cq> cq;
  Owned<ibv_srq> srq;
};

void several_pairs(Session& s) {
  Shared shared(s);
  constexpr uint32_t count = 30, length = 1500;
  Pair pairs[] = {Pair(s, shared.options()), Pair(s, shared.options()), Pair(s, shared.options())};
  Memory memory(shared.pd.get(), count * length);
  if (!s.is_requester)
    for (uint32_t i = 0; i < count; ++i) shared.receive(memory.element(i * length, length), i);
  s.control.barrier();
  if (s.is_requester) {
    for (uint32_t i = 0; i < count; ++i) {
      fill(memory.part(i * length, length), i);
      pairs[i % 3].send_immediate(memory.element(i * length, length), i, i);
    }
    for (uint32_t i = 0; i < count; ++i) pairs[i % 3].sent(i);
  } else {
    uint32_t next[3] = {0, 1, 2};
    for (uint32_t i = 0; i < count; ++i) {
      const ibv_wc wc = Pair::completion(shared.cq.get(), "receive");
      require(wc.status == IBV_WC_SUCCESS, "receive: %s", ibv_wc_status_str(wc.status));
      const uint32_t at = wc.qp_num == pairs[0].own.qpn ? 0 : wc.qp_num == pairs[1].own.qpn ? 1 : 2;
      require(wc.qp_num == pairs[at].own.qpn, "queue pair %u", wc.qp_num);
      require(wc.imm_data == next[at], "message %u came, not %u", wc.imm_data, next[at]);
      next[at] += 3;
      check(memory.part(wc.wr_id * length, length), wc.imm_data, "message");
    }
  }
  s.control.barrier();
}

void limit_event(Session& s) {
  Shared shared(s);
  Pair pair(s, shared.options());
  constexpr uint32_t count = 10;
  if (!s.is_requester) {
    for (uint32_t i = 0; i < count; ++i) shared.receive(pair.memory->element(0, 64), i);
    ibv_srq_attr a{};
    a.srq_limit = 5;
    const int result = ibv_modify_srq(shared.srq.get(), &a, IBV_SRQ_LIMIT);
    require(result == 0, "ibv_modify_srq: %d", result);
    require(!readable(s.context->async_fd, 0), "an event too early");
  }
  s.control.barrier();
  if (s.is_requester) {
    for (uint32_t i = 0; i < count; ++i) pair.send(pair.memory->element(0, 64), i);
    for (uint32_t i = 0; i < count; ++i) pair.sent(i);
  } else {
    for (uint32_t i = 0; i < count; ++i) {
      const ibv_wc wc = Pair::completion(shared.cq.get(), "receive");
      require(wc.status == IBV_WC_SUCCESS && wc.wr_id == i, "receive %llu: %s",
              static_cast<unsigned long long>(wc.wr_id), ibv_wc_status_str(wc.status));
    }
    require(readable(s.context->async_fd, 5000), "no limit event");
    ibv_async_event event{};
    require(ibv_get_async_event(s.context, &event) == 0, "ibv_get_async_event");
    ibv_ack_async_event(&event);
    require(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == shared.srq.get(),
            "event %d", event.event_type);
  }
  s.control.barrier();
}

void not_ready(Session& s) {
  Shared shared(s);
  Pair pair(s, shared.options());
  if (s.is_requester) {
    pair.send(pair.memory->element(0, 4000), 1);
    s.control.barrier();
    pair.sent(1);
  } else {
    s.control.barrier();
    shared.receive(pair.memory->element(0, 4096), 3);
    const ibv_wc wc = Pair::completion(shared.cq.get(), "receive");
    require(wc.status == IBV_WC_SUCCESS && wc.byte_len == 4000, "receive: %s", ibv_wc_status_str(wc.status));
  }
  s.control.barrier();
}

void take_event(Pair& pair) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  require(readable(pair.channel->fd, static_cast<int>(patience_s * 1000)), "no completion event");
  require(ibv_get_cq_event(pair.channel.get(), &cq, &context) == 0 && cq == pair.receive_cq(),
          "ibv_get_cq_event");
  ibv_ack_cq_events(cq, 1);
}

void events(Session& s) {
  PairOptions options;
  options.has_events = !s.is_requester;
  Pair pair(s, options);
  constexpr uint32_t count = 10;
  if (!s.is_requester)
    for (uint32_t i = 0; i < count; ++i) pair.receive(pair.memory->element(i * 64, 64), i);
  for (uint32_t i = 0; i < count; ++i) {
    if (!s.is_requester) require(ibv_req_notify_cq(pair.receive_cq(), 0) == 0, "ibv_req_notify_cq");
    s.control.barrier();
    if (s.is_requester) {
      pair.send(pair.memory->element(0, 64), i);
      pair.sent(i);
    } else {
      take_event(pair);
      pair.received(i);
    }
  }
  s.control.barrier();
}

// Armed for solicited ones, the channel stays silent for others.
void solicited(Session& s) {
  PairOptions options;
  options.has_events = !s.is_requester;
  Pair pair(s, options);
  if (!s.is_requester) {
    for (uint32_t i = 0; i < 2; ++i) pair.receive(pair.memory->element(i * 64, 64), i);
    require(ibv_req_notify_cq(pair.receive_cq(), 1) == 0, "ibv_req_notify_cq");
  }
  s.control.barrier();
  if (s.is_requester) {
    pair.send(pair.memory->element(0, 64), 0);
    pair.sent(0);
  }
  s.control.barrier();
  if (!s.is_requester) {
    pair.received(0);
    require(!readable(pair.channel->fd, 50), "an event for a message that is not solicited");
  }
  s.control.barrier();
  if (s.is_requester) {
    pair.send(pair.memory->element(0, 64), 1, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
    pair.sent(1);
  } else {
    take_event(pair);
    pair.received(1);
  }
  s.control.barrier();
}

constexpr Scenario scenarios[] = {
    {"srq_several_pairs", several_pairs}, {"srq_limit_event", limit_event},
    {"srq_not_ready", not_ready},         {"event_any", events},
    {"event_solicited", solicited},
};

}  // namespace

std::span<const Scenario> shared_scenarios() { return scenarios; }

}  // namespace weft::vm
