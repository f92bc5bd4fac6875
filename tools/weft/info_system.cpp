// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The machine as Weft meets it: files of /proc and /sys, and trials of system calls.
#include "info_system.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "line_transfer.hpp"

namespace fs = std::filesystem;

namespace weft::tool {

namespace {

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  return names;
}

std::string bytes_text(uint64_t bytes) {
  constexpr std::array units = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < units.size(); ++unit) bytes /= 1024;
  return fmt::format("{} {}", bytes, units[unit]);
}

SystemFact processors() {
  const std::string model = text_of("/proc/cpuinfo");
  const size_t at = model.find("model name");
  const size_t colon = at == std::string::npos ? at : model.find(": ", at);
  const std::string name = colon == std::string::npos
                               ? std::string("unknown model")
                               : model.substr(colon + 2, model.find('\n', colon) - colon - 2);
  cpu_set_t mine;
  CPU_ZERO(&mine);
  const unsigned usable =
      sched_getaffinity(0, sizeof mine, &mine) == 0 ? static_cast<unsigned>(CPU_COUNT(&mine)) : 1U;
  SystemFact fact{"processors",
                  fmt::format("{} of {} for this process, {}", usable,
                              count_in_list(text_of("/sys/devices/system/cpu/online")), name),
                  ""};
  if (usable < 2)
    fact.cost =
        "two processes that poll share one processor: a message waits for a change of process, microseconds "
        "instead of some 100 ns";
  return fact;
}

SystemFact caches() {
  std::string value;
  const fs::path folder = "/sys/devices/system/cpu/cpu0/cache";
  for (const std::string& index : names_in(folder)) {
    if (!index.starts_with("index") || text_of(folder / index / "type") == "Instruction") continue;
    value += fmt::format("{}L{} {}", value.empty() ? "" : ", ", text_of(folder / index / "level"),
                         text_of(folder / index / "size"));
  }
  return {"caches of a processor", value.empty() ? "unknown" : value, ""};
}

SystemFact placement() {
  SystemFact fact{"a cache line between two processors", "not measured: one processor", ""};
  cpu_set_t mine;
  CPU_ZERO(&mine);
  std::vector<int> usable;
  if (sched_getaffinity(0, sizeof mine, &mine) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &mine)) usable.push_back(cpu);
  if (usable.size() < 2) return fact;
  const auto pin = [](int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
  };
  LineTransfer line;
  const pid_t other = fork();
  if (other == 0) {
    pin(usable[1]);
    (void)line.time(false);
    _exit(0);
  }
  pin(usable[0]);
  const double ns = line.time(true);
  (void)sched_setaffinity(0, sizeof mine, &mine);
  if (other > 0) (void)waitpid(other, nullptr, 0);
  fact.value = ns > 0 ? fmt::format("{:.0f} ns one way between {} and {}: {}", ns, usable[0], usable[1],
                                    placement_of(ns, ns))
                      : std::string("the other processor did not answer");
  if (ns >= far_ns_min)
    fact.cost =
        "shared memory between these takes several times as long as between near processors; pin processes "
        "to a pair that shares a cache";
  return fact;
}

// Whether a process of this user may read another's memory, which large messages over shm go by.
SystemFact cross_memory() {
  static std::array<char, 8> source = {'w', 'e', 'f', 't', 0, 0, 0, 0};
  std::array<int, 2> ends{};
  SystemFact fact{"reading a peer's memory (process_vm_readv)", "", ""};
  if (pipe(ends.data()) != 0) return fact;
  const pid_t other = fork();
  if (other == 0) {
    char byte = 0;
    (void)close(ends[1]);
    (void)!read(ends[0], &byte, 1);
    _exit(0);
  }
  (void)close(ends[0]);
  std::array<char, 8> copy{};
  const iovec here{copy.data(), copy.size()};
  const iovec there{source.data(), source.size()};
  const bool may =
      other > 0 && process_vm_readv(other, &here, 1, &there, 1, 0) == static_cast<ssize_t>(copy.size());
  const int error = errno;
  (void)close(ends[1]);
  if (other > 0) (void)waitpid(other, nullptr, 0);
  const std::string scope = text_of("/proc/sys/kernel/yama/ptrace_scope");
  fact.value = may ? "yes" : fmt::format("no: {}", std::strerror(error));
  if (!scope.empty()) fact.value += ", kernel.yama.ptrace_scope = " + scope;
  if (!may) fact.cost = "messages above 256 KiB over shm are copied twice, through shared memory";
  else if (!scope.empty() && scope != "0")
    fact.cost =
        "between processes that are not parent and child the kernel refuses it: those copy large messages "
        "through shared memory";
  return fact;
}

SystemFact process_descriptors() {
#ifdef SYS_pidfd_open
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  if (fd >= 0) {
    (void)close(fd);
    return {"descriptors of processes (pidfd)", "yes", ""};
  }
#endif
  return {"descriptors of processes (pidfd)", "no",
          "a peer over shm that is killed is not noticed: Linux 5.3 has them"};
}

SystemFact locked_memory() {
  rlimit limit{};
  (void)getrlimit(RLIMIT_MEMLOCK, &limit);
  SystemFact fact{"memory that may be pinned (ulimit -l)",
                  limit.rlim_cur == RLIM_INFINITY ? "without limit" : bytes_text(limit.rlim_cur), ""};
  if (limit.rlim_cur != RLIM_INFINITY && geteuid() != 0)
    fact.cost =
        "only for network cards by VFIO: rings, buffers and registered memory count; shm, tcp, udp and verbs "
        "in software pin nothing";
  return fact;
}

SystemFact descriptors() {
  rlimit limit{};
  (void)getrlimit(RLIMIT_NOFILE, &limit);
  SystemFact fact{"descriptors (ulimit -n)", std::to_string(limit.rlim_cur), ""};
  if (limit.rlim_cur < 1024)
    fact.cost = "each peer over shm takes two, each connection one: more peers than that are refused";
  return fact;
}

SystemFact huge_pages() {
  const std::string memory = text_of("/proc/meminfo");
  const long long total = number_after(memory, "HugePages_Total:");
  const long long left = number_after(memory, "HugePages_Free:");
  SystemFact fact{"huge pages",
                  fmt::format("{} of {} kB, {} free", total, number_after(memory, "Hugepagesize:"), left),
                  ""};
  if (left <= 0) fact.cost = "only for network cards by VFIO: more mappings for the same memory";
  return fact;
}

SystemFact socket_buffer() {
  const std::string text = text_of("/proc/sys/net/core/rmem_max");
  SystemFact fact{"socket buffer (net.core.rmem_max)", text + " bytes", ""};
  long long bytes = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (bytes < (4 << 20) && geteuid() != 0)
    fact.cost =
        "datagrams and UC, UD queue pairs over UDP lose what a sleeping receiver has no room for; 8388608 is "
        "better";
  return fact;
}

SystemFact user_namespaces() {
  const pid_t other = fork();
  if (other == 0) _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
  int status = 1;
  if (other > 0) (void)waitpid(other, &status, 0);
  const bool may = other > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return {"user namespaces", may ? "yes" : "no",
          may ? "" : "UCX over verbs, which wants files in /dev/infiniband, needs root"};
}

std::vector<SystemFact> interfaces() {
  std::map<std::string, std::string> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::array<char, NI_MAXHOST> host{};
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(one->ifa_addr, length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
      continue;
    std::string& text = found[one->ifa_name];
    text += (text.empty() ? "" : ", ") + std::string(host.data());
  }
  freeifaddrs(list);
  std::vector<SystemFact> facts;
  facts.reserve(found.size());
  for (const auto& [name, addresses] : found)
    facts.push_back({"interface " + name,
                     fmt::format("{}; MTU {}", addresses, text_of("/sys/class/net/" + name + "/mtu")), ""});
  return facts;
}

SystemFact iommu_groups() {
  const size_t groups = names_in("/sys/kernel/iommu_groups").size();
  size_t given = 0;
  for (const std::string& name : names_in("/dev/vfio")) given += name != "vfio" ? 1 : 0;
  SystemFact fact{"IOMMU groups, of these for programs (VFIO)", fmt::format("{}, {}", groups, given), ""};
  if (groups == 0)
    fact.cost =
        "no network card can be driven by Weft itself: the machine has no IOMMU, or it is off "
        "(intel_iommu=on)";
  else if (given == 0)
    fact.cost = "no network card is driven by Weft itself: weft nic list says what it takes";
  return fact;
}

SystemFact rdma_devices() {
  std::string value;
  for (const std::string& name : names_in("/sys/class/infiniband"))
    value += (value.empty() ? "" : ", ") + name;
  return {"RDMA devices of the kernel", value.empty() ? "none" : value,
          value.empty() ? "none: verbs programs run over Weft's device in software" : ""};
}

}  // namespace

long long number_after(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return -1;
  text.remove_prefix(at + key.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  long long number = -1;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

unsigned count_in_list(std::string_view list) {
  unsigned count = 0;
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    list.remove_prefix(std::min(range.size() + 1, list.size()));
    unsigned first = 0;
    const auto [end, error] = std::from_chars(range.data(), range.data() + range.size(), first);
    if (error != std::errc()) continue;
    unsigned last = first;
    if (end != range.data() + range.size() && *end == '-')
      (void)std::from_chars(end + 1, range.data() + range.size(), last);
    if (last >= first) count += last - first + 1;
  }
  return count;
}

std::vector<SystemFact> system_facts() {
  utsname kernel{};
  (void)uname(&kernel);
  std::vector<SystemFact> facts = {{"kernel", fmt::format("{} {}", kernel.sysname, kernel.release), ""},
                                   processors(),
                                   caches(),
                                   placement(),
                                   cross_memory(),
                                   process_descriptors(),
                                   descriptors(),
                                   locked_memory(),
                                   huge_pages(),
                                   socket_buffer(),
                                   user_namespaces()};
  for (SystemFact& one : interfaces()) facts.push_back(std::move(one));
  facts.push_back(iommu_groups());
  facts.push_back(rdma_devices());
  return facts;
}

void print_system_table(const std::vector<SystemFact>& facts) {
  for (const SystemFact& fact : facts) {
    fmt::print("{:<44} {}\n", fact.name, fact.value);
    if (!fact.cost.empty()) fmt::print("    {}\n", fact.cost);
  }
}

void print_system_json(const std::vector<SystemFact>& facts) {
  nlohmann::json all = nlohmann::json::array();
  for (const SystemFact& fact : facts) {
    nlohmann::json entry = {{"name", fact.name}, {"value", fact.value}};
    if (!fact.cost.empty()) entry["cost"] = fact.cost;
    all.push_back(std::move(entry));
  }
  fmt::print("{}\n", all.dump(2));
}

}  // namespace weft::tool
