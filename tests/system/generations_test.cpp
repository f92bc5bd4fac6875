// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// generations_test [LIBWEFT]: programs of each generation of libfabric's binary interface over the drop-in, or over the multiplexer: their structures end at a page that may not be touched, so
// reading or writing one byte beyond them is the end. Discovery, and an endpoint with a region and an error entry. fabric(7), "ABI CHANGES".
// Knows only the exported symbols and the standard inline calls.
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Generation {
  const char* version;
  uint32_t api;
  size_t info, tx, ep, domain, fabric, region, error;  // bytes of each structure then
};

// fi_rx_attr has not changed. The oldest fabric attributes ended in padding, where api_version is now.
constexpr Generation kGenerations[] = {
    {"FABRIC_1.0", FI_VERSION(1, 4), 112, 72, 80, 120, 32, 48, 72},
    {"FABRIC_1.1", FI_VERSION(1, 6), 112, 72, 96, 184, 32, 64, 80},
    {"FABRIC_1.2", FI_VERSION(1, 8), 120, 72, 96, 184, 32, 64, 80},
    {"FABRIC_1.3", FI_VERSION(1, 17), 120, 80, 96, 192, 32, 80, 80},
    {"FABRIC_1.3", FI_VERSION(1, 19), 120, 80, 96, 192, 32, 88, 80},
    {"FABRIC_1.7", FI_VERSION(1, 20), 120, 80, 96, 200, 32, 88, 88},
    {"FABRIC_1.7", FI_VERSION(1, 22), 120, 80, 96, 200, 32, 96, 88},
    {"FABRIC_1.8", FI_VERSION(2, 1), 120, 80, 96, 208, 32, 112, 88},
    {"FABRIC_1.9", FI_VERSION(2, 6), 120, 80, 96, 224, 32, 112, 88},
};

const char* context = "";

void check(bool good, const char* what) {
  if (good) return;
  printf("FAILED: %s at %s\n", what, context);
  exit(1);
}
void succeeds(ssize_t status, const char* what) {
  if (status == 0) return;
  printf("FAILED: %s at %s: %zd\n", what, context, status);
  exit(1);
}

// `bytes` zeroed bytes before a page without access. They stay for good.
void* at_the_edge(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* map =
      static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(map + page, page, PROT_NONE);
  return map + page - bytes;
}

template <class T>
T* at_the_edge(const Generation&, size_t bytes) {
  return static_cast<T*>(at_the_edge(bytes));
}

template <class Function>
Function symbol(void* library, const char* name, const char* version) {
  void* found = dlvsym(library, name, version);
  check(found != nullptr, name);
  return reinterpret_cast<Function>(found);
}

struct Entry {
  decltype(&fi_getinfo) getinfo;
  decltype(&fi_dupinfo) dupinfo;
  decltype(&fi_freeinfo) freeinfo;
  int (*fabric)(fi_fabric_attr* attr, fid_fabric** fabric, void* context);
};

template <class T>
T value_at(const void* structure, size_t offset) {
  T value;
  memcpy(&value, static_cast<const char*>(structure) + offset, sizeof value);
  return value;
}

// The fields of fi_domain_attr behind those of 1.17, as far as the generation has them.
void check_tail(const Generation& of, const fi_domain_attr* domain) {
  if (of.domain >= 200) check(value_at<size_t>(domain, 192) == 0, "max_ep_auth_key");
  if (of.domain >= 208) check(value_at<uint32_t>(domain, 200) == 0, "max_group_id");
  if (of.domain >= 224) check(value_at<uint64_t>(domain, 208) == UINT64_MAX, "max_cntr_value");
  if (of.domain >= 224) check(value_at<uint64_t>(domain, 216) == UINT64_MAX, "max_err_cntr_value");
}

fi_info* make_hints(const Generation& of) {
  auto* hints = at_the_edge<fi_info>(of, of.info);
  hints->tx_attr = at_the_edge<fi_tx_attr>(of, of.tx);
  hints->rx_attr = at_the_edge<fi_rx_attr>(of, sizeof(fi_rx_attr));
  hints->ep_attr = at_the_edge<fi_ep_attr>(of, of.ep);
  hints->domain_attr = at_the_edge<fi_domain_attr>(of, of.domain);
  hints->fabric_attr = at_the_edge<fi_fabric_attr>(of, of.fabric);
  hints->caps = FI_MSG | FI_TAGGED;
  hints->mode = ~0ULL;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->max_ep_tx_ctx = 1;
  return hints;
}

// A copy in structures that end where those of the generation do, as programs make them by hand.
fi_info* copy_by_hand(const Generation& of, const fi_info* info) {
  fi_info* mine = at_the_edge<fi_info>(of, of.info);
  memcpy(static_cast<void*>(mine), info, of.info);
  mine->next = nullptr;
  mine->domain_attr = at_the_edge<fi_domain_attr>(of, of.domain);
  memcpy(static_cast<void*>(mine->domain_attr), info->domain_attr, of.domain);
  mine->ep_attr = at_the_edge<fi_ep_attr>(of, of.ep);
  memcpy(static_cast<void*>(mine->ep_attr), info->ep_attr, of.ep);
  mine->tx_attr = at_the_edge<fi_tx_attr>(of, of.tx);
  memcpy(static_cast<void*>(mine->tx_attr), info->tx_attr, of.tx);
  mine->rx_attr = at_the_edge<fi_rx_attr>(of, sizeof(fi_rx_attr));
  memcpy(static_cast<void*>(mine->rx_attr), info->rx_attr, sizeof(fi_rx_attr));
  mine->fabric_attr = at_the_edge<fi_fabric_attr>(of, of.fabric);
  memcpy(static_cast<void*>(mine->fabric_attr), info->fabric_attr, of.fabric);
  return mine;
}

// fi_cq_readerr of the library, or as headers before 2.0 have it inline.
ssize_t (*read_error)(fid_cq* cq, fi_cq_err_entry* buf, uint64_t flags) =
    [](fid_cq* cq, fi_cq_err_entry* buf, uint64_t flags) { return cq->ops->readerr(cq, buf, flags); };

// A message longer than its receive, whose entry is read into a structure of the generation. `has_source`: it ends with src_addr.
void check_error_entry(fid_cq* cq, size_t bytes, bool has_source) {
  auto* error = static_cast<fi_cq_err_entry*>(at_the_edge(bytes));
  if (has_source) memset(reinterpret_cast<char*>(error) + 80, 0, 8);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  ssize_t status = -FI_EAGAIN;
  char entries[4 * sizeof(fi_cq_tagged_entry)];
  while (status != -FI_EAVAIL && std::chrono::steady_clock::now() < until)
    status = fi_cq_read(cq, entries, 1);
  check(status == -FI_EAVAIL, "no error entry came");
  check(read_error(cq, error, 0) == 1, "fi_cq_readerr");
  check(error->err == FI_ETRUNC && error->olen == 8, "the error is a truncation by 8 bytes");
  if (has_source) check(value_at<fi_addr_t>(error, 80) == FI_ADDR_NOTAVAIL, "src_addr is FI_ADDR_NOTAVAIL");
}

// `asked`: the API that fi_getinfo was asked; programs of some generations ask what fi_version says.
void run_endpoint(const Entry& entry, const Generation& of, fi_info* info, uint32_t asked) {
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_ep* ep = nullptr;
  fid_av* av = nullptr;
  fid_cq* cq = nullptr;
  succeeds(entry.fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
  succeeds(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
  fi_av_attr av_attr{};
  succeeds(fi_av_open(domain, &av_attr, &av, nullptr), "fi_av_open");
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  succeeds(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
  succeeds(fi_endpoint(domain, info, &ep, nullptr), "fi_endpoint");
  succeeds(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
  succeeds(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
  succeeds(fi_enable(ep), "fi_enable");

  static char memory[64];
  iovec iov{memory, sizeof memory};
  auto* region = static_cast<fi_mr_attr*>(at_the_edge(of.region));
  region->mr_iov = &iov;
  region->iov_count = 1;
  region->access = FI_SEND | FI_RECV;
  fid_mr* mr = nullptr;
  succeeds(fi_mr_regattr(domain, region, 0, &mr), "fi_mr_regattr");
  succeeds(fi_close(&mr->fid), "fi_close of a region");
  constexpr uint64_t dmabuf = uint64_t{1} << 40;  // the first member points to something else then
  if (FI_VERSION_GE(asked, FI_VERSION(1, 20))) {
    region->mr_iov = nullptr;
    check(fi_mr_regattr(domain, region, dmabuf, &mr) == -FI_ENOSYS, "fi_mr_regattr with FI_MR_DMABUF");
  }
  // Options that came later are asked for, not missed.
  size_t size = 0;
  size_t length = sizeof size;
  constexpr int max_msg_size = 12, max_atomic_size = 15;
  succeeds(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, max_msg_size, &size, &length), "FI_OPT_MAX_MSG_SIZE");
  check(size != 0 && size <= info->ep_attr->max_msg_size, "FI_OPT_MAX_MSG_SIZE");
  check(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, max_atomic_size, &size, &length) == -FI_ENOPROTOOPT,
        "FI_OPT_MAX_ATOMIC_SIZE");

  char name[256];
  length = sizeof name;
  succeeds(fi_getname(&ep->fid, name, &length), "fi_getname");
  fi_addr_t self = FI_ADDR_NOTAVAIL;
  check(fi_av_insert(av, name, 1, &self, 0, nullptr) == 1, "fi_av_insert");
  int receive = 0;
  succeeds(fi_recv(ep, memory, 8, nullptr, FI_ADDR_UNSPEC, &receive), "fi_recv");
  succeeds(fi_inject(ep, memory + 16, 16, self), "fi_inject");
  check_error_entry(cq, of.error, of.error >= 88);
  size_t of_name = sizeof name;
  check(fi_av_lookup(av, self + 1, name, &of_name) == -FI_EINVAL, "fi_av_lookup of what is not there");
  fi_addr_t beyond = self + 1;
  check(fi_av_remove(av, &beyond, 1, 0) == -FI_EINVAL, "fi_av_remove of what is not there");

  for (fid* object : {&ep->fid, &cq->fid, &av->fid, &domain->fid, &fabric->fid})
    succeeds(fi_close(object), "fi_close");
}

// Programs name the protocol that they know a provider by.
uint32_t protocol_of(const char* provider) {
  return strcmp(provider, "tcp") == 0 ? FI_PROTO_XNET : FI_PROTO_SHM;
}

void run(const Entry& entry, const Generation& of, uint32_t asked, const char* provider) {
  fi_info* hints = make_hints(of);
  if (provider != nullptr) {
    hints->fabric_attr->prov_name = const_cast<char*>(provider);
    hints->ep_attr->protocol = protocol_of(provider);
  }
  fi_info* infos = nullptr;
  succeeds(entry.getinfo(asked, nullptr, nullptr, 0, hints, &infos), "fi_getinfo");
  check(infos != nullptr, "fi_getinfo found nothing");
  for (const fi_info* info = infos; info != nullptr; info = info->next) {
    check((info->caps & (FI_MSG | FI_TAGGED)) == (FI_MSG | FI_TAGGED), "caps");
    check(info->fabric_attr->prov_name != nullptr, "prov_name");
    check_tail(of, info->domain_attr);
  }
  fi_info* mine = copy_by_hand(of, infos);
  fi_info* copy = entry.dupinfo(mine);
  check(copy != nullptr && copy->next == nullptr, "fi_dupinfo");
  check(strcmp(copy->fabric_attr->prov_name, infos->fabric_attr->prov_name) == 0, "the copy");
  check_tail(of, copy->domain_attr);
  fi_info* fresh = entry.dupinfo(nullptr);
  check(fresh != nullptr && fresh->ep_attr != nullptr, "fi_allocinfo");
  if (of.domain >= 224) check(value_at<uint64_t>(fresh->domain_attr, 208) == 0, "fi_allocinfo is zeroed");
  entry.freeinfo(fresh);
  if (provider != nullptr) run_endpoint(entry, of, mine, asked);
  entry.freeinfo(copy);
  entry.freeinfo(infos);
}

// What hints of later generations ask for and no provider has is refused, not missed.
void run_refusals(const Entry& entry, const Generation& of) {
  const auto refused = [&](auto edit) {
    fi_info* hints = make_hints(of);
    edit(*hints);
    fi_info* infos = nullptr;
    return entry.getinfo(of.api, nullptr, nullptr, 0, hints, &infos) == -FI_ENODATA;
  };
  const auto put = [](fi_info& hints, size_t offset, auto value) {
    memcpy(reinterpret_cast<char*>(hints.domain_attr) + offset, &value, sizeof value);
  };
  if (of.domain >= 200) {
    check(refused([&](fi_info& hints) { put(hints, 192, size_t{1}); }), "max_ep_auth_key of 1 is refused");
    check(refused([](fi_info& hints) { hints.domain_attr->auth_key_size = SIZE_MAX; }),
          "FI_AV_AUTH_KEY is refused");
  }
  if (of.domain >= 208)
    check(refused([&](fi_info& hints) { put(hints, 200, uint32_t{1}); }), "max_group_id of 1 is refused");
  for (const int bit : {45, 46, 48})
    check(refused([&](fi_info& hints) { hints.caps |= uint64_t{1} << bit; }),
          "capabilities of 2.0 are refused");
}

// Calls of 1.20 look at the size of the provider's table, which may be that of 1.17.
void check_later_calls(void* library) {
  using SetUserId = int (*)(fid_av * av, fi_addr_t fi_addr, fi_addr_t user_id, uint64_t flags);
  struct Ops {
    fi_ops_av known;
    char later[64];
  } ops{};
  static_assert(sizeof(fi_ops_av) >= 64);
  fid_av av{};
  av.ops = &ops.known;
  const auto call = symbol<SetUserId>(library, "fi_av_set_user_id", "WEFT_1.1");
  const SetUserId told = [](fid_av*, fi_addr_t, fi_addr_t user_id, uint64_t) {
    return static_cast<int>(user_id);
  };
  memcpy(reinterpret_cast<char*>(&ops) + 80, &told, sizeof told);
  for (const size_t size : {64, 80}) {
    ops.known.size = size;
    check(call(&av, 0, 7, 0) == -FI_ENOSYS, "fi_av_set_user_id of a table that ends before it");
  }
  ops.known.size = 88;
  check(call(&av, 0, 7, 0) == 7, "fi_av_set_user_id");
  symbol<void*>(library, "fi_av_insert_auth_key", "WEFT_1.1");
  symbol<void*>(library, "fi_av_lookup_auth_key", "WEFT_1.1");
}

// The multiplexer's node with the structures of a libfabric's.
const char* mux_node(const char* node) {
  constexpr const char* pairs[][2] = {{"FABRIC_1.3", "WEFT_1.0"},
                                      {"FABRIC_1.7", "WEFT_1.1"},
                                      {"FABRIC_1.8", "WEFT_1.2"},
                                      {"FABRIC_1.9", "WEFT_1.3"}};
  for (const auto& pair : pairs)
    if (strcmp(pair[0], node) == 0) return pair[1];
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const bool mux = argc > 1;
  void* library = dlopen(mux ? argv[1] : "libfabric.so.1", RTLD_NOW);
  check(library != nullptr, "dlopen of the library");
  const char* const first = mux ? "WEFT_1.0" : "FABRIC_1.0";
  const auto tostr = symbol<decltype(&fi_tostr)>(library, "fi_tostr", first);
  const char* name = tostr("", FI_TYPE_VERSION);
  if (name == nullptr || strstr(name, "weft") == nullptr) {
    printf("another libfabric is in the path\n");
    return 77;
  }
  if (mux) read_error = symbol<decltype(read_error)>(library, "fi_cq_readerr", first);
  const uint32_t newest = symbol<decltype(&fi_version)>(library, "fi_version", first)();
  check(newest == FI_VERSION(2, 6), "fi_version");
  for (const Generation& of : kGenerations) {
    context = mux ? mux_node(of.version) : of.version;
    if (context == nullptr) continue;  // older than the multiplexer
    const char* const opened = mux || of.api < FI_VERSION(1, 5) ? first : "FABRIC_1.1";
    const Entry entry = {symbol<decltype(&fi_getinfo)>(library, "fi_getinfo", context),
                         symbol<decltype(&fi_dupinfo)>(library, "fi_dupinfo", context),
                         symbol<decltype(&fi_freeinfo)>(library, "fi_freeinfo", context),
                         symbol<decltype(&fi_fabric)>(library, "fi_fabric", opened)};
    // Objects that were linked without a libfabric are bound to the oldest node and mean what they ask, so programs of that time may not ask more.
    const bool may_ask_more = strcmp(of.version, "FABRIC_1.3") >= 0;
    for (const uint32_t asked : {of.api, may_ask_more ? newest : of.api}) {
      run(entry, of, asked, nullptr);
      for (const char* provider : {"shm", "tcp"}) run(entry, of, asked, provider);
    }
    run_refusals(entry, of);
    printf("%s, structures of %u.%u: discovery, two endpoints, a region, an error entry\n", context,
           FI_MAJOR(of.api), FI_MINOR(of.api));
  }
  using OpenByInfo = int (*)(fi_info * info, fid_fabric * *fabric, uint64_t flags, void* context);
  const auto fabric2 = symbol<OpenByInfo>(library, "fi_fabric2", mux ? "WEFT_1.2" : "FABRIC_1.8");
  fid_fabric* fabric = nullptr;
  check(fabric2(nullptr, &fabric, 0, nullptr) == -FI_EINVAL, "fi_fabric2 without info");
  if (mux) check_later_calls(library);
  return 0;
}
