// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A program ends (exit(3)) while another thread of it polls a queue: the library's memory stays until the kernel takes it. Mercury's server does that.
// Knows only the public interface.
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

std::atomic<unsigned> polls{0};

// Waits until the other thread has polled for a while more.
bool polls_on() {
  const unsigned before = polls.load();
  for (int i = 0; i < 2000 && polls.load() - before < 100'000; ++i) usleep(1000);
  return polls.load() != before;
}

// The very last function of the process: it is registered before the loader has initialized any library.
void last() {
  const bool good = polls_on();
  if (!good) std::fputs("FAILED: the other thread does not poll any more\n", stderr);
  _exit(good ? 0 : 1);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr bool is_possible = true;
extern "C" int __cxa_atexit(void (*function)(void*), void* argument, void* library);  // NOLINT
void note_last(int, char**, char**) {
  __cxa_atexit([](void*) { last(); }, nullptr, nullptr);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const first)(int, char**, char**) = note_last;
#else
constexpr bool is_possible = false;  // a sanitizer's runtime is not ready then
[[maybe_unused]] void (*const first)() = last;
#endif

int fail(const char* what, int status) {
  std::printf("FAILED: %s: %s\n", what, fi_strerror(-status));
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (!is_possible) {
    std::puts("not with a sanitizer: its runtime is made after the first functions of a program");
    return 77;
  }
  fi_info* hints = fi_allocinfo();
  hints->fabric_attr->prov_name = strdup(argc > 1 ? argv[1] : "shm");
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG;
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* av = nullptr;
  fid_cq* cq = nullptr;
  fid_ep* ep = nullptr;
  fi_av_attr av_attr{};
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_MSG;
  if (int rc = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info))
    return fail("fi_getinfo", rc);
  if (int rc = fi_fabric(info->fabric_attr, &fabric, nullptr)) return fail("fi_fabric", rc);
  if (int rc = fi_domain(fabric, info, &domain, nullptr)) return fail("fi_domain", rc);
  if (int rc = fi_av_open(domain, &av_attr, &av, nullptr)) return fail("fi_av_open", rc);
  if (int rc = fi_cq_open(domain, &cq_attr, &cq, nullptr)) return fail("fi_cq_open", rc);
  if (int rc = fi_endpoint(domain, info, &ep, nullptr)) return fail("fi_endpoint", rc);
  if (int rc = fi_ep_bind(ep, &av->fid, 0)) return fail("fi_ep_bind", rc);
  if (int rc = fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV)) return fail("fi_ep_bind", rc);
  if (int rc = fi_enable(ep)) return fail("fi_enable", rc);
  std::thread([cq] {
    for (;;) {
      fi_cq_msg_entry entry;
      (void)fi_cq_read(cq, &entry, 1);
      ++polls;
    }
  }).detach();
  while (!polls_on()) usleep(1000);
  std::exit(0);
}
