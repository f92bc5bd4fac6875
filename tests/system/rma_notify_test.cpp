// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One-sided transfers as libraries that move the memory of inference servers make them (NIXL): API 1.18 without a second try, FI_HMEM first and then
// without it, the domain by the name that discovery gave, FI_THREAD_COMPLETION, an address vector without a type, keys that are addresses of 64 bits,
// writes with data for the target's queue, which are chained by FI_MORE, reads and messages with data. Knows the public interface only.
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

const char* context = "";

void check(bool good, const char* what) {
  if (good) return;
  std::printf("FAILED over %s: %s\n", context, what);
  std::exit(1);
}
void succeeds(ssize_t status, const char* what) {
  if (status == 0) return;
  std::printf("FAILED over %s: %s: %zd (%s)\n", context, what, status,
              fi_strerror(static_cast<int>(-status)));
  std::exit(1);
}

constexpr size_t block_bytes = 256 * 1024;
constexpr int block_count = 16;

struct Side {
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_cq* cq = nullptr;
  fid_av* av = nullptr;
  fid_ep* ep = nullptr;
  fid_mr* region = nullptr;
  fi_info* info = nullptr;
  std::vector<char> memory = std::vector<char>(block_count * block_bytes);
  fi_addr_t peer = FI_ADDR_UNSPEC;
  int sent = 0, written = 0, messages = 0;
  uint64_t data_of_writes = 0, data_of_messages = 0;

  uint64_t base() const {
    const bool virtual_addresses = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    return virtual_addresses ? reinterpret_cast<uintptr_t>(memory.data()) : 0;
  }
};

fi_info* discover(const char* provider, const char* domain, int mr_mode, size_t key_size) {
  fi_info* hints = fi_allocinfo();
  hints->caps = FI_MSG | FI_RMA | FI_LOCAL_COMM | FI_REMOTE_COMM;
  hints->mode = FI_CONTEXT;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = mr_mode;
  hints->domain_attr->mr_key_size = key_size;
  hints->domain_attr->threading = FI_THREAD_COMPLETION;
  if (domain != nullptr) hints->domain_attr->name = strdup(domain);
  hints->fabric_attr->prov_name = strdup(provider);
  fi_info* info = nullptr;
  hints->caps |= FI_HMEM;
  check(fi_getinfo(FI_VERSION(1, 18), nullptr, nullptr, 0, hints, &info) == -FI_ENODATA,
        "FI_HMEM is refused");
  hints->caps &= ~static_cast<uint64_t>(FI_HMEM);
  succeeds(fi_getinfo(FI_VERSION(1, 18), nullptr, nullptr, 0, hints, &info), "fi_getinfo");
  fi_freeinfo(hints);
  check(FI_VERSION_GE(info->fabric_attr->api_version, FI_VERSION(1, 18)), "api_version");
  check(info->domain_attr->cq_data_size >= 4, "cq_data_size");
  return info;
}

void open(Side& side, fi_info* info) {
  side.info = info;
  succeeds(fi_fabric(info->fabric_attr, &side.fabric, nullptr), "fi_fabric");
  succeeds(fi_domain(side.fabric, info, &side.domain, nullptr), "fi_domain");
  fi_cq_attr cq{};
  cq.format = FI_CQ_FORMAT_DATA;
  cq.wait_obj = FI_WAIT_NONE;
  cq.size = 12288;
  succeeds(fi_cq_open(side.domain, &cq, &side.cq, nullptr), "fi_cq_open");
  fi_av_attr av{};
  succeeds(fi_av_open(side.domain, &av, &side.av, nullptr), "fi_av_open");
  succeeds(fi_endpoint(side.domain, info, &side.ep, nullptr), "fi_endpoint");
  succeeds(fi_ep_bind(side.ep, &side.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
  succeeds(fi_ep_bind(side.ep, &side.av->fid, 0), "fi_ep_bind");
  succeeds(fi_enable(side.ep), "fi_enable");
  iovec iov{side.memory.data(), side.memory.size()};
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  attr.access = FI_READ | FI_WRITE | FI_SEND | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
  attr.requested_key = reinterpret_cast<uintptr_t>(side.memory.data());
  attr.iface = FI_HMEM_SYSTEM;
  succeeds(fi_mr_regattr(side.domain, &attr, 0, &side.region), "fi_mr_regattr");
  if ((info->domain_attr->mr_mode & FI_MR_PROV_KEY) == 0)
    check(fi_mr_key(side.region) == attr.requested_key, "the key is the address");
}

void meet(Side& side, const Side& other) {
  char name[256];
  size_t length = sizeof name;
  succeeds(fi_getname(&other.ep->fid, name, &length), "fi_getname");
  check(fi_av_insert(side.av, name, 1, &side.peer, 0, nullptr) == 1, "fi_av_insert");
}

void poll(Side& side) {
  fi_cq_data_entry entries[16];
  const ssize_t got = fi_cq_read(side.cq, entries, 16);
  if (got == -FI_EAVAIL) {
    fi_cq_err_entry error{};
    (void)fi_cq_readerr(side.cq, &error, 0);
    succeeds(-error.err, "a completion");
  }
  check(got > 0 || got == -FI_EAGAIN, "fi_cq_read");
  for (ssize_t i = 0; i < got; ++i) {
    const uint64_t flags = entries[i].flags;
    if ((flags & FI_REMOTE_WRITE) != 0) {
      check((flags & FI_REMOTE_CQ_DATA) != 0 && (flags & FI_RMA) != 0, "flags of a write's data");
      ++side.written;
      side.data_of_writes += entries[i].data;
    } else if ((flags & FI_RECV) != 0) {
      check((flags & FI_REMOTE_CQ_DATA) != 0, "flags of a message with data");
      ++side.messages;
      side.data_of_messages = entries[i].data;
    } else {
      ++side.sent;
    }
  }
}

template <class Done>
void poll_until(Side& a, Side& b, Done done, const char* what) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!done()) {
    poll(a);
    poll(b);
    check(std::chrono::steady_clock::now() < until, what);
  }
}

template <class Post>
void post(Side& a, Side& b, Post call, const char* what) {
  ssize_t status = 0;
  poll_until(
      a, b, [&] { return (status = call()) != -FI_EAGAIN; }, what);
  succeeds(status, what);
}

void run(const char* provider, int mr_mode, size_t key_size) {
  Side a, b;
  fi_info* first = discover(provider, nullptr, mr_mode, key_size);
  open(a, discover(provider, first->domain_attr->name, mr_mode, key_size));
  open(b, discover(provider, first->domain_attr->name, mr_mode, key_size));
  fi_freeinfo(first);
  meet(a, b);
  meet(b, a);

  fi_context room[block_count * 2 + 4]{};
  size_t used = 0;
  void* desc = fi_mr_desc(a.region);
  void* desc_b = fi_mr_desc(b.region);
  static char inbox[64];
  iovec to{inbox, sizeof inbox};
  fi_msg receive{};
  receive.msg_iov = &to;
  receive.desc = &desc_b;
  receive.iov_count = 1;
  receive.addr = FI_ADDR_UNSPEC;
  receive.context = &room[used++];
  fid_mr* of_inbox = nullptr;
  succeeds(fi_mr_reg(b.domain, inbox, sizeof inbox, FI_SEND | FI_RECV, 0, 7, 0, &of_inbox, nullptr),
           "fi_mr_reg");
  desc_b = fi_mr_desc(of_inbox);
  succeeds(fi_recvmsg(b.ep, &receive, 0), "fi_recvmsg");

  const auto block = [&](Side& from, Side& target, int i, uint64_t flags, bool write) {
    const size_t at = static_cast<size_t>(i) * block_bytes;
    iovec iov{from.memory.data() + at, block_bytes};
    fi_rma_iov remote{target.base() + at, block_bytes, fi_mr_key(target.region)};
    fi_msg_rma msg{};
    msg.msg_iov = &iov;
    msg.desc = &desc;
    msg.iov_count = 1;
    msg.addr = from.peer;
    msg.rma_iov = &remote;
    msg.rma_iov_count = 1;
    msg.context = &room[used++];
    msg.data = static_cast<uint64_t>(i) + 1;
    if (write)
      post(
          a, b, [&] { return fi_writemsg(from.ep, &msg, flags | FI_REMOTE_CQ_DATA); }, "fi_writemsg");
    else
      post(
          a, b, [&] { return fi_readmsg(from.ep, &msg, flags); }, "fi_readmsg");
  };
  for (size_t i = 0; i < a.memory.size(); ++i) a.memory[i] = static_cast<char>(i * 31 + (i >> 12));
  for (int i = 0; i < block_count; ++i) block(a, b, i, i + 1 < block_count ? FI_MORE : 0, true);
  poll_until(
      a, b, [&] { return a.sent == block_count && b.written == block_count; }, "writes end");
  check(b.data_of_writes == uint64_t{block_count} * (block_count + 1) / 2, "data of the writes");
  check(a.memory == b.memory, "what was written");

  for (char& byte : b.memory) byte = static_cast<char>(byte + 1);
  for (int i = 0; i < block_count; ++i) block(a, b, i, i + 1 < block_count ? FI_MORE : 0, false);
  poll_until(
      a, b, [&] { return a.sent == 2 * block_count; }, "reads end");
  check(a.memory == b.memory, "what was read");
  check(b.written == block_count, "reads have no data");

  post(
      a, b, [&] { return fi_senddata(a.ep, a.memory.data(), 40, desc, 0xabcd, a.peer, &room[used++]); },
      "fi_senddata");
  poll_until(
      a, b, [&] { return b.messages == 1 && a.sent == 2 * block_count + 1; }, "a message ends");
  check(b.data_of_messages == 0xabcd && std::memcmp(inbox, a.memory.data(), 40) == 0, "the message");

  succeeds(fi_close(&of_inbox->fid), "fi_close");
  for (Side* side : {&a, &b}) {
    for (fid* object : {&side->region->fid, &side->ep->fid, &side->av->fid, &side->cq->fid,
                        &side->domain->fid, &side->fabric->fid})
      succeeds(fi_close(object), "fi_close");
    fi_freeinfo(side->info);
  }
}

}  // namespace

int main() {
  for (const char* provider : {"tcp", "weft", "tcp;ofi_rxm", "udp;ofi_rxd"}) {
    context = provider;
    run(provider, FI_MR_LOCAL | FI_MR_ALLOCATED, 0);
    run(provider, FI_MR_LOCAL | FI_MR_HMEM | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY, 2);
    std::printf("%s: %d writes with data, %d reads, a message\n", provider, block_count, block_count);
  }
  return 0;
}
