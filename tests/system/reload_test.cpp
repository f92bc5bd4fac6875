// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A program loads a library of Weft, uses it and unloads it, many times: nothing of it stays in the heap or in the address space, and each load
// reads the environment anew. The drop-in, the multiplexer, the plugins, and a plugin below the drop-in.
//
//   reload_test [--cycles 50]
#include <dlfcn.h>
#include <malloc.h>
#include <rdma/providers/fi_prov.h>

#include <filesystem>
#include <fstream>

#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr int warm_up = 5;
constexpr size_t bytes_max = 256;  // a cycle: the loader and malloc differ by that

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::fprintf(stderr, "reload_test: line %d: %s\n", __LINE__, #condition); \
      return false;                                                             \
    }                                                                           \
  } while (false)

size_t heap() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

bool is_mapped(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(path) != std::string::npos) return true;
  return false;
}

struct Calls {
  decltype(&fi_getinfo) getinfo = nullptr;
  decltype(&fi_fabric) fabric = nullptr;
};

// Opens what there is for an endpoint, reads its queue, closes all.
bool use(const Calls& calls, fi_info* info) {
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_ep* endpoint = nullptr;
  fid_cq* queue = nullptr;
  fid_av* vector = nullptr;
  fi_cq_attr queue_attr{};
  queue_attr.wait_obj = FI_WAIT_UNSPEC;
  fi_av_attr vector_attr{};
  CHECK(calls.fabric(info->fabric_attr, &fabric, nullptr) == 0);
  CHECK(fi_domain(fabric, info, &domain, nullptr) == 0);
  CHECK(fi_endpoint(domain, info, &endpoint, nullptr) == 0);
  CHECK(fi_cq_open(domain, &queue_attr, &queue, nullptr) == 0);
  CHECK(fi_av_open(domain, &vector_attr, &vector, nullptr) == 0);
  CHECK(fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV) == 0);
  CHECK(fi_ep_bind(endpoint, &vector->fid, 0) == 0);
  CHECK(fi_enable(endpoint) == 0);
  fi_cq_entry entry;
  CHECK(fi_cq_sread(queue, &entry, 1, nullptr, 0) == -FI_EAGAIN);
  for (fid* object : {&endpoint->fid, &vector->fid, &queue->fid, &domain->fid, &fabric->fid})
    CHECK(fi_close(object) == 0);
  return true;
}

bool one_cycle(const std::string& path, const std::string& provider, bool plugin) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  CHECK(library != nullptr);
  Calls calls;
  fi_provider* entry = nullptr;
  if (plugin) {
    const auto enter = reinterpret_cast<fi_provider* (*)()>(dlsym(library, "fi_prov_ini"));
    CHECK(enter != nullptr && (entry = enter()) != nullptr);
    calls = {entry->getinfo, entry->fabric};
  } else {
    calls = {reinterpret_cast<decltype(&fi_getinfo)>(dlsym(library, "fi_getinfo")),
             reinterpret_cast<decltype(&fi_fabric)>(dlsym(library, "fi_fabric"))};
  }
  // Lists are made and freed by the library that the program is linked to: a plugin's are, too.
  fi_info* hints = fi_allocinfo();
  hints->caps = FI_MSG;
  if (!plugin) hints->fabric_attr->prov_name = strdup(provider.c_str());
  fi_info* info = nullptr;
  CHECK(calls.getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info) == 0);
  CHECK(use(calls, info));
  fi_freeinfo(info);
  fi_freeinfo(hints);
  if (plugin) entry->cleanup();
  CHECK(dlclose(library) == 0);
  return true;
}

bool grows_not(const std::string& path, const std::string& provider, int cycles, bool plugin = false) {
  for (int i = 0; i < warm_up; ++i) CHECK(one_cycle(path, provider, plugin));
  const size_t before = heap();
  for (int i = 0; i < cycles; ++i) CHECK(one_cycle(path, provider, plugin));
  const size_t after = heap();
  const size_t grown = after > before ? after - before : 0;
  std::printf("%s, %s: %zu bytes in %d cycles\n", path.c_str(), provider.c_str(), grown, cycles);
  CHECK(grown <= bytes_max * static_cast<size_t>(cycles));
  CHECK(!is_mapped(path));
  return true;
}

// What a load has read of the environment ends with it.
bool reads_anew(const std::string& path) {
  for (const char* name : {"tcp", "shm", "tcp"}) {
    setenv("FI_PROVIDER", name, 1);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK(library != nullptr);
    const auto getinfo = reinterpret_cast<decltype(&fi_getinfo)>(dlsym(library, "fi_getinfo"));
    fi_info* info = nullptr;
    CHECK(getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, nullptr, &info) == 0);
    CHECK(std::string(info->fabric_attr->prov_name) == name);
    fi_freeinfo(info);
    CHECK(dlclose(library) == 0);
  }
  unsetenv("FI_PROVIDER");
  return true;
}

int run(int cycles) {
  namespace fs = std::filesystem;
  const char* build = std::getenv("WEFT_BUILD");
  const char* sanitizer = std::getenv("WEFT_SANITIZE");
  if (build == nullptr || (sanitizer != nullptr && *sanitizer != '\0')) {
    std::puts("reload_test: the heap is counted in a build without sanitizers only");
    return 77;
  }
  const fs::path root(build);
  // The loader knows a file by its inode, and this program is linked to the drop-in itself: a copy is another library.
  std::string folder = fs::temp_directory_path() / "weft-reload-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 1;
  const fs::path copy = fs::path(folder) / "dropin.so";
  fs::copy_file(root / "lib/weft/compat/libfabric.so.1", copy);

  bool good = true;
  for (const char* provider : {"shm", "tcp", "udp;ofi_rxd", "tcp;ofi_rxm", "weft"})
    good = good && grows_not(copy, provider, cycles);
  good = good && reads_anew(copy);
  good = good && grows_not(root / "lib/libweft.so.1", "shm", cycles);
  for (const char* plugin : {"libweft-fi.so", "libweft-tcp-fi.so"})
    good = good && grows_not(root / "lib/weft/plugin" / plugin, plugin, cycles, true);
  // A plugin stays loaded; the drop-in over it goes.
  setenv("FI_PROVIDER_PATH", (root / "examples/minimal_provider").c_str(), 1);
  good = good && grows_not(copy, "minimal", cycles);
  fs::remove_all(folder);
  std::puts(good ? "reload_test: passed" : "reload_test: FAILED");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  alarm(120);
  return run(static_cast<int>(arguments.number("cycles", 50)));
}
