// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counts instructions of single calls: two endpoints in one process, and callgrind collects around exactly
// one call at a time.
// Written against the public interface alone, so that every library is counted by the same program.
// bench/instructions.py runs it.
//
//   valgrind --tool=callgrind --collect-atstart=no callgrind_ops PROVIDER CALL COUNT
//
// CALL is  nothing   an empty stretch: what the counting itself costs
//          tinject   fi_tinject of 8 bytes to a peer that keeps up
//          empty     fi_cq_read of a queue to which nothing comes
//          one       fi_cq_read that takes a message from the peer, matches it and returns its completion
//
//   callgrind_ops PROVIDER time COUNT     nanoseconds of each, without callgrind: medians over batches, as JSON
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <valgrind/callgrind.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "command_line.hpp"

namespace {

constexpr uint64_t tag = 7;
constexpr int warm_count =
    2000;  // messages either way, so that a library that treats busy peers better does so
constexpr int polls_most = 1 << 20;  // then the message is lost

[[noreturn]] void die(const char* what, ssize_t status) {
  std::fprintf(stderr, "callgrind_ops: %s: %s\n", what, fi_strerror(static_cast<int>(-status)));
  std::exit(1);
}

void check(ssize_t status, const char* what) {
  if (status != 0) die(what, status);
}

struct Fabric {
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* av = nullptr;

  explicit Fabric(const char* provider) {
    fi_info* hints = fi_allocinfo();
    if (!hints) die("fi_allocinfo", -FI_ENOMEM);
    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(provider);
    check(fi_getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), nullptr, nullptr, 0, hints, &info),
          "fi_getinfo");
    fi_freeinfo(hints);
    check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    check(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    attr.count = 2;
    check(fi_av_open(domain, &attr, &av, nullptr), "fi_av_open");
  }
  ~Fabric() {
    fi_close(&av->fid);
    fi_close(&domain->fid);
    fi_close(&fabric->fid);
    fi_freeinfo(info);
  }
};

struct Endpoint {
  fid_ep* ep = nullptr;
  fid_cq* cq = nullptr;
  fi_addr_t address = FI_ADDR_UNSPEC;
  uint64_t buffer = 0;
  fi_context context{};

  explicit Endpoint(Fabric& f) {
    fi_cq_attr attr{};
    attr.size = 256;
    attr.format = FI_CQ_FORMAT_TAGGED;
    check(fi_cq_open(f.domain, &attr, &cq, nullptr), "fi_cq_open");
    check(fi_endpoint(f.domain, f.info, &ep, nullptr), "fi_endpoint");
    check(fi_ep_bind(ep, &f.av->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_enable(ep), "fi_enable");
    unsigned char name[256];
    size_t length = sizeof name;
    check(fi_getname(&ep->fid, name, &length), "fi_getname");
    if (fi_av_insert(f.av, name, 1, &address, 0, nullptr) != 1) die("fi_av_insert", -FI_EINVAL);
  }
  ~Endpoint() {
    fi_close(&ep->fid);
    fi_close(&cq->fid);
  }
  void post() {
    check(fi_trecv(ep, &buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, tag, 0, &context), "fi_trecv");
  }
  bool read() {
    fi_cq_tagged_entry entry;
    const ssize_t n = fi_cq_read(cq, &entry, 1);
    if (n != 1 && n != -FI_EAGAIN) die("fi_cq_read", n);
    return n == 1;
  }
};

void send(Endpoint& from, Endpoint& to, uint64_t value) {
  ssize_t status;
  while ((status = fi_tinject(from.ep, &value, sizeof value, to.address, tag)) == -FI_EAGAIN) {
    from.read();
    to.read();
  }
  check(status, "fi_tinject");
}

void take(Endpoint& at, Endpoint& other, uint64_t value) {
  int polls = 0;
  while (!at.read()) {
    other.read();  // manual progress
    if (++polls > polls_most) die("a message was lost", -FI_EIO);
  }
  if (at.buffer != value) die("a message came with other bytes", -FI_EIO);
}

void warm(Endpoint& a, Endpoint& b) {
  for (uint64_t i = 0; i < warm_count; ++i) {
    b.post();
    send(a, b, i);
    take(b, a, i);
    a.post();
    send(b, a, i);
    take(a, b, i);
  }
}

void count_nothing(uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    CALLGRIND_TOGGLE_COLLECT;
    CALLGRIND_TOGGLE_COLLECT;
  }
}

void count_tinject(Endpoint& a, Endpoint& b, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    b.post();
    CALLGRIND_TOGGLE_COLLECT;
    const ssize_t status = fi_tinject(a.ep, &i, sizeof i, b.address, tag);
    CALLGRIND_TOGGLE_COLLECT;
    check(status, "fi_tinject");
    take(b, a, i);
  }
}

void count_empty(Endpoint& at, uint64_t count) {
  fi_cq_tagged_entry entry;
  for (uint64_t i = 0; i < count; ++i) {
    CALLGRIND_TOGGLE_COLLECT;
    const ssize_t n = fi_cq_read(at.cq, &entry, 1);
    CALLGRIND_TOGGLE_COLLECT;
    if (n != -FI_EAGAIN) die("fi_cq_read of an empty queue", n);
  }
}

// A library may need more than one call until the completion is there; all of them count.
void count_one(Endpoint& a, Endpoint& b, uint64_t count) {
  fi_cq_tagged_entry entry;
  uint64_t calls = 0;
  for (uint64_t i = 0; i < count; ++i) {
    b.post();
    send(a, b, i);
    ssize_t n;
    do {
      CALLGRIND_TOGGLE_COLLECT;
      n = fi_cq_read(b.cq, &entry, 1);
      CALLGRIND_TOGGLE_COLLECT;
      if (++calls > count * 1000) die("a message was lost", -FI_EIO);
    } while (n == -FI_EAGAIN);
    if (n != 1 || b.buffer != i) die("fi_cq_read", n);
  }
  std::printf("calls %.3f\n", static_cast<double>(calls) / static_cast<double>(count));
}

// --- time ---

constexpr int batch = 32;

// Nanoseconds of one of `batch` calls, the median of all batches. prepare() and settle() are not measured.
template <class Prepare, class Timed, class Settle>
double median_ns(uint64_t batches, Prepare prepare, Timed timed, Settle settle) {
  std::vector<double> all;
  all.reserve(batches);
  for (uint64_t i = 0; i < batches; ++i) {
    prepare();
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < batch; ++k) timed();
    const auto end = std::chrono::steady_clock::now();
    settle();
    all.push_back(std::chrono::duration<double, std::nano>(end - begin).count() / batch);
  }
  std::nth_element(all.begin(), all.begin() + static_cast<ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

void time_all(Endpoint& a, Endpoint& b, uint64_t count) {
  const uint64_t batches = std::max<uint64_t>(count / batch, 3);
  const auto post = [&] {
    for (int k = 0; k < batch; ++k) b.post();
  };
  const auto take_all = [&] {
    for (int k = 0; k < batch; ++k) take(b, a, 1);
  };
  const uint64_t value = 1;
  const double tinject = median_ns(
      batches, post,
      [&] {
        if (fi_tinject(a.ep, &value, sizeof value, b.address, tag) != 0) die("fi_tinject", -FI_EAGAIN);
      },
      take_all);
  const auto nothing = [] {};
  fi_cq_tagged_entry entry;
  const double empty = median_ns(
      batches, nothing,
      [&] {
        if (fi_cq_read(b.cq, &entry, 1) != -FI_EAGAIN) die("fi_cq_read of an empty queue", -FI_EIO);
      },
      nothing);
  const double one = median_ns(
      batches,
      [&] {
        post();
        for (int k = 0; k < batch; ++k) send(a, b, value);
      },
      [&] {
        while (fi_cq_read(b.cq, &entry, 1) != 1) continue;
      },
      nothing);
  std::printf("{\"tinject\": %.2f, \"empty\": %.2f, \"one\": %.2f}\n", tinject, empty, one);
}

}  // namespace

int main(int argc, char** argv) {
  std::string provider, call;
  uint64_t count = 0;
  CLI::App app("Counts instructions of single calls, or times them", "callgrind_ops");
  app.add_option("provider", provider, "provider")->required();
  app.add_option("call", call, "what is counted, or time")
      ->required()
      ->check(CLI::IsMember({"nothing", "tinject", "empty", "one", "time"}));
  app.add_option("count", count, "calls")->required();
  weft::bench::read_command_line(app, argc, argv);
  Fabric fabric(provider.c_str());
  Endpoint a(fabric), b(fabric);
  warm(a, b);
  if (call == "nothing") {
    count_nothing(count);
  } else if (call == "tinject") {
    count_tinject(a, b, count);
  } else if (call == "empty") {
    count_empty(b, count);
  } else if (call == "one") {
    count_one(a, b, count);
  } else {
    time_all(a, b, count);
  }
  return 0;
}
