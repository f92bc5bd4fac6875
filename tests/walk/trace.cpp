// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Records the functions that one tagged message passes: one of 8 bytes that is injected, and the read that returns its completion; or one that is sent
// with a completion (WEFT_WALK_BYTES), and all reads of both sides until both have theirs.
//
//   trace    prints "send ADDRESS" and "receive ADDRESS" lines, in the order of the calls; tests/walk/walk_test.py gives them names
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <cstdint>
#include <vector>

#include "recorder.hpp"

#ifndef WEFT_WALK_BYTES
#define WEFT_WALK_BYTES 8
#endif

namespace {

using walk::must;
using walk::record;

walk::Record out_calls;
walk::Record in_calls;

struct Side {
  fid_domain* domain = nullptr;
  fid_av* av = nullptr;
  fid_cq* cq = nullptr;
  fid_ep* ep = nullptr;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  std::vector<char> name = std::vector<char>(256);

  void open(fid_fabric* fabric, fi_info* info) {
    must("fi_domain", fi_domain(fabric, info, &domain, nullptr));
    fi_av_attr av_attr{};
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    must("fi_av_open", fi_av_open(domain, &av_attr, &av, nullptr));
    must("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, nullptr));
    must("fi_endpoint", fi_endpoint(domain, info, &ep, nullptr));
    must("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
    must("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    must("fi_enable", fi_enable(ep));
    size_t length = name.size();
    must("fi_getname", fi_getname(&ep->fid, name.data(), &length));
  }
  void meet(const Side& other) {
    must("fi_av_insert", fi_av_insert(av, other.name.data(), 1, &peer, 0, nullptr) == 1 ? 0 : -1);
  }
  void close() {
    for (fid* each : {&ep->fid, &cq->fid, &av->fid, &domain->fid}) must("fi_close", fi_close(each));
  }
};

constexpr uint64_t tag = 7;
constexpr size_t bytes = WEFT_WALK_BYTES;
constexpr int warm_up = bytes > 4096 ? 20 : 200;

// One call out, one call in: calls that found nothing to do are not kept.
void exchange_small(Side& sender, Side& receiver, const std::vector<char>& from) {
  fi_cq_tagged_entry entry{};
  const auto inject = [&] { return fi_tinject(sender.ep, from.data(), bytes, sender.peer, tag); };
  const auto read = [&] { return fi_cq_read(receiver.cq, &entry, 1); };
  while (out_calls.count = 0, record(out_calls, inject) == -FI_EAGAIN) (void)fi_cq_read(sender.cq, &entry, 1);
  while (in_calls.count = 0, record(in_calls, read) != 1) (void)fi_cq_read(sender.cq, &entry, 1);
  (void)fi_cq_read(sender.cq, &entry, 1);
}

void exchange_large(Side& sender, Side& receiver, const std::vector<char>& from) {
  fi_cq_tagged_entry entry{};
  const auto send = [&] {
    return fi_tsend(sender.ep, from.data(), bytes, nullptr, sender.peer, tag, sender.ep);
  };
  out_calls.count = in_calls.count = 0;
  while (record(out_calls, send) == -FI_EAGAIN) {
    out_calls.count = 0;
    (void)fi_cq_read(sender.cq, &entry, 1);
    (void)fi_cq_read(receiver.cq, &entry, 1);
  }
  bool has_sent = false;
  bool has_received = false;
  while (!has_sent || !has_received) {
    if (!has_received)
      has_received = record(in_calls, [&] { return fi_cq_read(receiver.cq, &entry, 1); }) == 1;
    if (!has_sent) has_sent = record(out_calls, [&] { return fi_cq_read(sender.cq, &entry, 1); }) == 1;
    if (has_sent != has_received) {  // the peer may still depend on this side's progress
      (void)fi_cq_read(has_sent ? sender.cq : receiver.cq, &entry, 1);
    }
  }
  // What ends the operation comes behind the completions.
  for (int i = 0; i < 5; ++i) {
    (void)record(in_calls, [&] { return fi_cq_read(receiver.cq, &entry, 1); });
    (void)record(out_calls, [&] { return fi_cq_read(sender.cq, &entry, 1); });
  }
}

}  // namespace

int main() {
  fi_info* hints = fi_allocinfo();
  hints->caps = FI_TAGGED;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->tx_attr->op_flags = 0;
  fi_info* info = nullptr;
  must("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info));
  fid_fabric* fabric = nullptr;
  must("fi_fabric", fi_fabric(info->fabric_attr, &fabric, nullptr));
  Side sender;
  Side receiver;
  sender.open(fabric, info);
  receiver.open(fabric, info);
  sender.meet(receiver);
  receiver.meet(sender);
  std::vector<char> from(bytes);
  std::vector<char> to(bytes);
  for (int i = 0; i <= warm_up; ++i) {
    from.assign(bytes, static_cast<char>(i));
    must("fi_trecv", fi_trecv(receiver.ep, to.data(), bytes, nullptr, receiver.peer, tag, 0, &to));
    if (bytes > sizeof(uint64_t)) exchange_large(sender, receiver, from);
    else exchange_small(sender, receiver, from);
    must("the message", from == to ? 0 : -1);
  }
  walk::print("send", out_calls);
  walk::print("receive", in_calls);
  sender.close();
  receiver.close();
  must("fi_close", fi_close(&fabric->fid));
  fi_freeinfo(info);
  fi_freeinfo(hints);
  return 0;
}
