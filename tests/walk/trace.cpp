// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Records the functions that one message passes: an 8-byte tagged message that is injected, and the read that returns its completion. What is on its way
// is compiled into this program with -finstrument-functions (cmake/tests.cmake).
//
//   trace    prints "send ADDRESS" and "receive ADDRESS" lines, in the order of the calls; tests/walk/walk_test.py gives them names
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr size_t calls_max = 4096;
void* calls[calls_max];
size_t call_count = 0;
bool recording = false;

}  // namespace

extern "C" {
[[gnu::no_instrument_function]] void __cyg_profile_func_enter(void* function, void*) {  // NOLINT
  if (recording && call_count < calls_max) calls[call_count++] = function;
}
[[gnu::no_instrument_function]] void __cyg_profile_func_exit(void*, void*) {}  // NOLINT
}

namespace {

template <class Call>
auto recorded(Call&& call) {
  call_count = 0;
  recording = true;
  const auto result = call();
  recording = false;
  return result;
}
void print(const char* what) {
  for (size_t i = 0; i < call_count; ++i) std::printf("%s %p\n", what, calls[i]);
}
void must(const char* what, long status) {
  if (status == 0) return;
  std::fprintf(stderr, "trace: %s: %ld\n", what, status);
  std::exit(1);
}

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
constexpr int warm_up = 200;

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
  for (int i = 0; i <= warm_up; ++i) {
    uint64_t in = 0;
    const uint64_t out = static_cast<uint64_t>(i);
    fi_cq_tagged_entry entry{};
    must("fi_trecv", fi_trecv(receiver.ep, &in, sizeof(in), nullptr, receiver.peer, tag, 0, &in));
    const auto inject = [&] { return fi_tinject(sender.ep, &out, sizeof(out), sender.peer, tag); };
    while (recorded(inject) == -FI_EAGAIN) (void)fi_cq_read(sender.cq, &entry, 1);
    if (i == warm_up) print("send");
    while (recorded([&] { return fi_cq_read(receiver.cq, &entry, 1); }) != 1)
      (void)fi_cq_read(sender.cq, &entry, 1);
    if (i == warm_up) print("receive");
    (void)fi_cq_read(sender.cq, &entry, 1);
    must("the message", in == out ? 0 : -1);
  }
  sender.close();
  receiver.close();
  must("fi_close", fi_close(&fabric->fid));
  fi_freeinfo(info);
  fi_freeinfo(hints);
  return 0;
}
