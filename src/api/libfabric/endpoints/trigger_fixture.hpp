// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two endpoints of one domain that take triggered operations, and one small operation of each kind. For tests
// only.
#pragma once

#include <gtest/gtest.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "api/libfabric/discovery/getinfo.hpp"
#include "api/libfabric/objects/open_fabric.hpp"
#include "api/libfabric/objects/work_queue.hpp"

namespace weft::fi::test {

inline constexpr uint64_t all_caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER | FI_MULTI_RECV;

struct Node {
  fid_ep* ep = nullptr;
  fid_av* av = nullptr;
  fid_cq* tx = nullptr;
  fid_cq* rx = nullptr;
  fid_cntr* sends = nullptr;
  fid_cntr* receives = nullptr;
  fi_addr_t peer = FI_ADDR_UNSPEC;
};

struct Entry {
  void* context = nullptr;
  uint64_t flags = 0;
  size_t len = 0;
  int err = 0;
};

class Trigger : public testing::Test {
 protected:
  void open(fi_threading threading = FI_THREAD_SAFE, uint64_t caps = all_caps, size_t tx_size = 0,
            uint64_t bind = 0) {
    InfoPtr hints(dup_info(nullptr));
    ASSERT_TRUE(assign_string(&hints->fabric_attr->prov_name, provider_name));
    hints->caps = caps;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = threading;
    hints->tx_attr->size = tx_size;
    fi_info* found = nullptr;
    ASSERT_EQ(get_info({providers()}, FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &found), 0);
    info.reset(found);
    for (const Provider* provider : providers())
      if (std::string(provider->name) == provider_name) {
        ASSERT_EQ(open_fabric(*provider, info->fabric_attr, &fabric, nullptr), 0);
      }
    ASSERT_NE(fabric, nullptr);
    ASSERT_EQ(fi_domain(fabric, info.get(), &domain, nullptr), 0);
    for (Node& node : nodes) open_node(node, bind);
    for (size_t i = 0; i < 2; ++i) {
      char name[64];
      size_t length = sizeof name;
      ASSERT_EQ(fi_getname(&nodes[1 - i].ep->fid, name, &length), 0);
      ASSERT_EQ(fi_av_insert(nodes[i].av, name, 1, &nodes[i].peer, 0, nullptr), 1);
    }
  }

  void open_node(Node& node, uint64_t bind) {
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    fi_av_attr av_attr{};
    ASSERT_EQ(fi_endpoint(domain, info.get(), &node.ep, nullptr), 0);
    ASSERT_EQ(fi_av_open(domain, &av_attr, &node.av, nullptr), 0);
    ASSERT_EQ(fi_cq_open(domain, &cq_attr, &node.tx, nullptr), 0);
    ASSERT_EQ(fi_cq_open(domain, &cq_attr, &node.rx, nullptr), 0);
    node.sends = counter();
    node.receives = counter();
    ASSERT_EQ(fi_ep_bind(node.ep, &node.av->fid, 0), 0);
    ASSERT_EQ(fi_ep_bind(node.ep, &node.tx->fid, FI_TRANSMIT | bind), 0);
    ASSERT_EQ(fi_ep_bind(node.ep, &node.rx->fid, FI_RECV | bind), 0);
    ASSERT_EQ(fi_ep_bind(node.ep, &node.sends->fid, FI_SEND | FI_READ | FI_WRITE), 0);
    ASSERT_EQ(fi_ep_bind(node.ep, &node.receives->fid, FI_RECV), 0);
    ASSERT_EQ(fi_enable(node.ep), 0);
  }

  fid_cntr* counter(fi_wait_obj wait = FI_WAIT_NONE) {
    fi_cntr_attr attr{};
    attr.events = FI_CNTR_EVENTS_COMP;
    attr.wait_obj = wait;
    fid_cntr* made = nullptr;
    EXPECT_EQ(fi_cntr_open(domain, &attr, &made, nullptr), 0);
    counters.push_back(made);
    return made;
  }

  void close(fid_ep*& ep) {
    if (ep == nullptr) return;
    EXPECT_EQ(fi_close(&ep->fid), 0);
    ep = nullptr;
  }

  void TearDown() override {
    for (Node& node : nodes) close(node.ep);
    for (fid_cntr* each : counters) {
      EXPECT_EQ(fi_close(&each->fid), 0) << "work still names a counter";
    }
    for (fid_mr* each : regions) fi_close(&each->fid);
    for (Node& node : nodes) {
      for (::fid* each : {reinterpret_cast<::fid*>(node.av), reinterpret_cast<::fid*>(node.tx),
                          reinterpret_cast<::fid*>(node.rx)}) {
        if (each != nullptr) {
          EXPECT_EQ(fi_close(each), 0);
        }
      }
    }
    if (domain != nullptr) {
      EXPECT_EQ(fi_close(&domain->fid), 0) << "a test left something open";
    }
    if (fabric != nullptr) {
      EXPECT_EQ(fi_close(&fabric->fid), 0);
    }
  }

  void collect(fid_cq* cq, std::deque<Entry>& into) {
    fi_cq_tagged_entry entry{};
    const ssize_t n = fi_cq_read(cq, &entry, 1);
    if (n == 1) into.push_back({entry.op_context, entry.flags, entry.len, 0});
    if (n != -FI_EAVAIL) return;
    fi_cq_err_entry error{};
    ASSERT_EQ(fi_cq_readerr(cq, &error, 0), 1);
    into.push_back({error.op_context, error.flags, error.len, error.err});
  }
  void drive() {
    for (Node& node : nodes) {
      if (node.ep == nullptr) continue;
      collect(node.tx, sent);
      collect(node.rx, received);
    }
  }
  bool drive_until(const std::function<bool()>& done) {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
         std::chrono::steady_clock::now() < end;) {
      if (done()) return true;
      drive();
    }
    return done();
  }
  void drive_for_a_while() {
    for (int i = 0; i < 200; ++i) drive();
  }

  static fi_triggered_context context(fid_cntr* cntr, uint64_t at) {
    fi_triggered_context made{};
    made.event_type = FI_TRIGGER_THRESHOLD;
    made.trigger.threshold = {cntr, at};
    return made;
  }
  fid_mr* region(void* memory, size_t bytes) {
    fid_mr* mr = nullptr;
    EXPECT_EQ(fi_mr_reg(domain, memory, bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 100 + regions.size(), 0,
                        &mr, nullptr),
              0);
    regions.push_back(mr);
    return mr;
  }
  uint64_t remote_address(const void* memory) const {
    return (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<uint64_t>(memory) : 0;
  }
  int queue(fi_deferred_work& work) { return fi_control(&domain->fid, FI_QUEUE_WORK, &work); }
  int cancel(fi_deferred_work& work) { return fi_control(&domain->fid, FI_CANCEL_WORK, &work); }
  size_t links_of(fid_cntr* cntr) { return reinterpret_cast<Cntr*>(cntr)->counter.progressors().size(); }

  const char* provider_name = "loopback";
  InfoPtr info;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  std::array<Node, 2> nodes;
  std::vector<fid_cntr*> counters;
  std::vector<fid_mr*> regions;
  std::deque<Entry> sent;
  std::deque<Entry> received;
};

// One small operation of each kind, from node 0 to node 1 (receives: at node 0), with all it points to.
struct Operation {
  explicit Operation(fi_op_type op) : type(op) {}

  // Points everything at everything; the memory at the other side is `cell`.
  void build(const Node& node, void* op_context, uint64_t remote, uint64_t key, uint64_t flags = 0) {
    iov = {&local, sizeof local};
    operand = {&local, 1};
    result = {&old, 1};
    compare = {&expected, 1};
    rma = {remote, sizeof local, key};
    rma_element = {remote, 1, key};
    const fi_addr_t peer = type == FI_OP_RECV || type == FI_OP_TRECV ? FI_ADDR_UNSPEC : node.peer;
    msg = {node.ep, {&iov, nullptr, 1, peer, op_context, 0}, flags};
    tagged = {node.ep, {&iov, nullptr, 1, peer, 77, 0, op_context, 0}, flags};
    access = {node.ep, {&iov, nullptr, 1, peer, &rma, 1, op_context, 0}, flags};
    const fi_op what = type == FI_OP_COMPARE_ATOMIC ? FI_CSWAP : FI_SUM;
    atomic = {node.ep, {&operand, nullptr, 1, peer, &rma_element, 1, FI_UINT64, what, op_context, 0}, flags};
    fetch = {node.ep, atomic.msg, {&result, nullptr, 1}, flags};
    swap = {node.ep, atomic.msg, {&result, nullptr, 1}, {&compare, nullptr, 1}, flags};
  }
  ssize_t post(uint64_t flags) const {
    switch (type) {
      case FI_OP_RECV:
        return fi_recvmsg(msg.ep, &msg.msg, flags);
      case FI_OP_SEND:
        return fi_sendmsg(msg.ep, &msg.msg, flags);
      case FI_OP_TRECV:
        return fi_trecvmsg(tagged.ep, &tagged.msg, flags);
      case FI_OP_TSEND:
        return fi_tsendmsg(tagged.ep, &tagged.msg, flags);
      case FI_OP_READ:
        return fi_readmsg(access.ep, &access.msg, flags);
      case FI_OP_WRITE:
        return fi_writemsg(access.ep, &access.msg, flags);
      case FI_OP_ATOMIC:
        return fi_atomicmsg(atomic.ep, &atomic.msg, flags);
      case FI_OP_FETCH_ATOMIC:
        return fi_fetch_atomicmsg(atomic.ep, &atomic.msg, fetch.fetch.msg_iov, nullptr, 1, flags);
      default:
        return fi_compare_atomicmsg(atomic.ep, &atomic.msg, swap.compare.msg_iov, nullptr, 1,
                                    swap.fetch.msg_iov, nullptr, 1, flags);
    }
  }
  fi_deferred_work work(fid_cntr* trigger, uint64_t at, fid_cntr* completion) {
    fi_deferred_work made{};
    made.threshold = at;
    made.triggering_cntr = trigger;
    made.completion_cntr = completion;
    made.op_type = type;
    switch (type) {
      case FI_OP_RECV:
      case FI_OP_SEND:
        made.op.msg = &msg;
        break;
      case FI_OP_TRECV:
      case FI_OP_TSEND:
        made.op.tagged = &tagged;
        break;
      case FI_OP_READ:
      case FI_OP_WRITE:
        made.op.rma = &access;
        break;
      case FI_OP_ATOMIC:
        made.op.atomic = &atomic;
        break;
      case FI_OP_FETCH_ATOMIC:
        made.op.fetch_atomic = &fetch;
        break;
      default:
        made.op.compare_atomic = &swap;
    }
    return made;
  }
  // Nothing that the program passed may be read again, except the buffers.
  void scribble() {
    for (iovec* each : {&iov}) *each = {nullptr, 1};
    operand = result = compare = {nullptr, 1};
    rma = {1, 2, 3};
    rma_element = {1, 2, 3};
    msg = {};
    tagged = {};
    access = {};
    atomic = {};
    fetch = {};
    swap = {};
  }

  fi_op_type type;
  uint64_t local = 5;
  uint64_t old = 0;
  uint64_t expected = 40;
  iovec iov{};
  fi_ioc operand{}, result{}, compare{};
  fi_rma_iov rma{};
  fi_rma_ioc rma_element{};
  fi_op_msg msg{};
  fi_op_tagged tagged{};
  fi_op_rma access{};
  fi_op_atomic atomic{};
  fi_op_fetch_atomic fetch{};
  fi_op_compare_atomic swap{};
};

}  // namespace weft::fi::test
