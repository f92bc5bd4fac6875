// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A made-up provider and the objects of one domain, for the tests of the C ABI. Must not know any real
// provider.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>

#include "api/libfabric/objects/objects.hpp"
#include "api/libfabric/objects/open_fabric.hpp"

namespace weft::fi::test {

inline constexpr size_t made_up_addrlen = 16;

inline const fi_info* made_up_offers() {
  static fi_tx_attr tx = [] {
    fi_tx_attr attr{};
    attr.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
    attr.size = 64;
    attr.iov_limit = 4;
    return attr;
  }();
  static fi_rx_attr rx = [] {
    fi_rx_attr attr{};
    attr.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
    attr.size = 64;
    attr.iov_limit = 4;
    return attr;
  }();
  static fi_ep_attr ep = [] {
    fi_ep_attr attr{};
    attr.type = FI_EP_RDM;
    attr.max_msg_size = SIZE_MAX;
    attr.tx_ctx_cnt = 1;
    attr.rx_ctx_cnt = 1;
    return attr;
  }();
  static char domain_name[] = "made_up_domain";
  static char fabric_name[] = "made_up_fabric";
  static fi_domain_attr domain = [] {
    fi_domain_attr attr{};
    attr.name = domain_name;
    attr.threading = FI_THREAD_SAFE;
    attr.control_progress = FI_PROGRESS_MANUAL;
    attr.data_progress = FI_PROGRESS_MANUAL;
    attr.resource_mgmt = FI_RM_ENABLED;
    attr.av_type = FI_AV_UNSPEC;
    attr.mr_key_size = 8;
    attr.mr_iov_limit = 8;
    return attr;
  }();
  static fi_fabric_attr fabric = [] {
    fi_fabric_attr attr{};
    attr.name = fabric_name;
    attr.api_version = FI_VERSION(1, 17);
    return attr;
  }();
  static fi_info info = [] {
    fi_info all{};
    all.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ | FI_WRITE |
               FI_REMOTE_READ | FI_REMOTE_WRITE;
    all.addr_format = FI_ADDR_STR;
    all.tx_attr = &tx;
    all.rx_attr = &rx;
    all.ep_attr = &ep;
    all.domain_attr = &domain;
    all.fabric_attr = &fabric;
    return all;
  }();
  return &info;
}

// "node" or "node:service"; a node that starts with '!' does not resolve.
inline Result<std::vector<std::byte>> made_up_resolve(uint32_t, const char* node, const char* service, bool) {
  std::string text = node == nullptr ? "here" : node;
  if (text[0] == '!') return Error{FI_EADDRNOTAVAIL, "nobody is called " + text};
  if (service != nullptr) text += std::string(":") + service;
  std::vector<std::byte> bytes(made_up_addrlen);
  std::memcpy(bytes.data(), text.data(), std::min(text.size(), made_up_addrlen - 1));
  return bytes;
}

inline std::string made_up_text(uint32_t, const void* bytes) {
  return "made-up://" + std::string(static_cast<const char*>(bytes),
                                    strnlen(static_cast<const char*>(bytes), made_up_addrlen));
}

inline int made_up_endpoint(Domain&, fi_info*, fid_ep**, void*) { return -FI_EOTHER; }

inline const Provider made_up = {"made_up",
                                 FI_VERSION(1, 0),
                                 [](const Provider&) { return made_up_offers(); },
                                 [](uint32_t) { return made_up_addrlen; },
                                 made_up_resolve,
                                 [](uint32_t) { return std::vector<std::byte>(made_up_addrlen); },
                                 [](uint32_t, std::byte*) { return true; },
                                 made_up_text,
                                 made_up_endpoint,
                                 nullptr,
                                 nullptr,
                                 nullptr};

// An endpoint as queues see it: tests hand frames in, progress() turns them into completions.
class FakeEndpoint final : public core::Progressor {
 public:
  explicit FakeEndpoint(Cq* cq = nullptr, Cntr* cntr = nullptr)
      : cq_(cq), cntr_(cntr), event_(std::move(*os::Event::create())) {
    if (cq_ != nullptr) {
      EXPECT_EQ(cq_->attach(*this), 0);
    }
    if (cntr_ != nullptr) {
      EXPECT_EQ(cntr_->attach(*this), 0);
    }
  }
  ~FakeEndpoint() {
    if (cq_ != nullptr) cq_->detach(*this);
    if (cntr_ != nullptr) cntr_->detach(*this);
  }

  // Any thread.
  void deliver(int frames = 1) {
    frames_.fetch_add(frames);
    if (asleep_.exchange(false)) event_.notify();
  }

  void progress() noexcept override {
    ++calls;
    for (int n = frames_.exchange(0); n > 0; --n) {
      core::Completion completion;
      completion.context = this;
      completion.flags = FI_RECV;
      completion.len = 5;
      completion.tag = ++tag_;
      completion.source = 3;
      if (cq_ != nullptr) cq_->queue.push(completion);
      if (cntr_ != nullptr) cntr_->counter.add(1);
    }
  }
  int wait_fd() noexcept override { return event_.fd(); }
  bool arm() noexcept override {
    asleep_.store(true);
    return frames_.load() == 0;
  }
  void disarm() noexcept override {
    asleep_.store(false);
    event_.drain();
  }

  int calls = 0;

 private:
  Cq* cq_;
  Cntr* cntr_;
  os::Event event_;
  std::atomic<int> frames_{0};
  std::atomic<bool> asleep_{false};
  uint64_t tag_ = 0;
};

inline int close(void* object) { return ::fi_close(static_cast<::fid*>(object)); }

// An open fabric and domain; each test says how.
class Objects : public testing::Test {
 protected:
  void open(fi_threading threading = FI_THREAD_SAFE, int mr_mode = 0, uint32_t api = FI_VERSION(1, 17)) {
    fi_fabric_attr attr{};
    attr.name = made_up_offers()->fabric_attr->name;
    attr.api_version = api;
    ASSERT_EQ(open_fabric(made_up, &attr, &fabric, nullptr), 0);
    fi_info info = *made_up_offers();
    fi_domain_attr domain_attr = *info.domain_attr;
    domain_attr.threading = threading;
    domain_attr.mr_mode = mr_mode;
    info.domain_attr = &domain_attr;
    ASSERT_EQ(fi_domain(fabric, &info, &domain, this), 0);
  }
  void TearDown() override {
    if (domain != nullptr) {
      EXPECT_EQ(fi_close(&domain->fid), 0) << "a test left something open";
    }
    if (fabric != nullptr) {
      EXPECT_EQ(fi_close(&fabric->fid), 0);
    }
  }

  fid_cq* open_cq(fi_cq_format format, fi_wait_obj wait = FI_WAIT_NONE, fid_wait* set = nullptr,
                  size_t size = 0) {
    fi_cq_attr attr{};
    attr.format = format;
    attr.wait_obj = wait;
    attr.wait_set = set;
    attr.size = size;
    fid_cq* cq = nullptr;
    EXPECT_EQ(fi_cq_open(domain, &attr, &cq, this), 0);
    return cq;
  }
  fid_cntr* open_cntr(fi_wait_obj wait = FI_WAIT_NONE, fid_wait* set = nullptr) {
    fi_cntr_attr attr{};
    attr.wait_obj = wait;
    attr.wait_set = set;
    fid_cntr* cntr = nullptr;
    EXPECT_EQ(fi_cntr_open(domain, &attr, &cntr, this), 0);
    return cntr;
  }
  fid_eq* open_eq(fi_wait_obj wait = FI_WAIT_NONE, uint64_t flags = FI_WRITE, size_t size = 0) {
    fi_eq_attr attr{};
    attr.wait_obj = wait;
    attr.flags = flags;
    attr.size = size;
    fid_eq* eq = nullptr;
    EXPECT_EQ(fi_eq_open(fabric, &attr, &eq, this), 0);
    return eq;
  }

  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
};

}  // namespace weft::fi::test
