// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Programs of older ABI generations over the drop-in: their structures end at a page that may not be touched, so
// reading or writing one byte beyond them is the end. fabric(7), "ABI CHANGES". Knows only the exported symbols.
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Generation {
  const char* version;
  uint32_t api;
  size_t info, tx, ep, domain, fabric;  // bytes of each structure then
};

// fi_rx_attr has not changed. The oldest fabric attributes ended in padding, where api_version is now.
constexpr Generation kGenerations[] = {
    {"FABRIC_1.0", FI_VERSION(1, 4), 112, 72, 80, 120, 32},
    {"FABRIC_1.1", FI_VERSION(1, 6), 112, 72, 96, 184, 32},
    {"FABRIC_1.2", FI_VERSION(1, 8), 120, 72, 96, 184, 32},
    {"FABRIC_1.3", FI_VERSION(1, 17), 120, 80, 96, 192, 32},
};

void check(bool good, const char* what, const char* version) {
  if (good) return;
  printf("FAILED: %s at %s\n", what, version);
  exit(1);
}

// `bytes` zeroed bytes before a page without access.
void* at_the_edge(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* map =
      static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(map + page, page, PROT_NONE);
  return map + page - bytes;
}

template <class Function>
Function symbol(void* library, const char* name, const char* version) {
  void* found = dlvsym(library, name, version);
  check(found != nullptr, name, version);
  return reinterpret_cast<Function>(found);
}

void run(void* library, const Generation& old) {
  const auto getinfo = symbol<decltype(&fi_getinfo)>(library, "fi_getinfo", old.version);
  const auto dupinfo = symbol<decltype(&fi_dupinfo)>(library, "fi_dupinfo", old.version);
  const auto freeinfo = symbol<decltype(&fi_freeinfo)>(library, "fi_freeinfo", old.version);

  auto* hints = static_cast<fi_info*>(at_the_edge(old.info));
  hints->tx_attr = static_cast<fi_tx_attr*>(at_the_edge(old.tx));
  hints->rx_attr = static_cast<fi_rx_attr*>(at_the_edge(sizeof(fi_rx_attr)));
  hints->ep_attr = static_cast<fi_ep_attr*>(at_the_edge(old.ep));
  hints->domain_attr = static_cast<fi_domain_attr*>(at_the_edge(old.domain));
  hints->fabric_attr = static_cast<fi_fabric_attr*>(at_the_edge(old.fabric));
  hints->caps = FI_MSG | FI_TAGGED;
  hints->mode = ~0ULL;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->max_ep_tx_ctx = 1;
  fi_info* infos = nullptr;
  check(getinfo(old.api, nullptr, nullptr, 0, hints, &infos) == 0 && infos != nullptr, "fi_getinfo",
        old.version);
  for (const fi_info* info = infos; info != nullptr; info = info->next) {
    check((info->caps & (FI_MSG | FI_TAGGED)) == (FI_MSG | FI_TAGGED), "caps", old.version);
    check(info->fabric_attr->prov_name != nullptr, "prov_name", old.version);
  }
  // Such a program copies what it got into a structure of its own size, and has that duplicated.
  auto* mine = static_cast<fi_info*>(at_the_edge(old.info));
  memcpy(static_cast<void*>(mine), infos, old.info);
  fi_info* copy = dupinfo(mine);
  check(copy != nullptr && copy->next == nullptr, "fi_dupinfo", old.version);
  check(strcmp(copy->fabric_attr->prov_name, infos->fabric_attr->prov_name) == 0, "the copy", old.version);
  fi_info* fresh = dupinfo(nullptr);
  check(fresh != nullptr && fresh->ep_attr != nullptr, "fi_allocinfo", old.version);
  freeinfo(fresh);
  freeinfo(copy);
  freeinfo(infos);
}

}  // namespace

int main() {
  void* library = dlopen("libfabric.so.1", RTLD_NOW);
  check(library != nullptr, "dlopen", "libfabric.so.1");
  const auto tostr = symbol<decltype(&fi_tostr)>(library, "fi_tostr", "FABRIC_1.0");
  const char* name = tostr("", FI_TYPE_VERSION);
  if (name == nullptr || strstr(name, "weft") == nullptr) {
    printf("another libfabric is in the path\n");
    return 77;
  }
  for (const Generation& old : kGenerations) run(library, old);
  printf("%zu generations\n", sizeof kGenerations / sizeof *kGenerations);
  return 0;
}
