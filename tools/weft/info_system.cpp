// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The machine as Weft meets it: files of /proc and /sys, and trials of system calls.
#include "info_system.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "info_calls.hpp"
#include "line_transfer.hpp"
#include "system_files.hpp"

namespace fs = std::filesystem;

namespace weft::tool {

namespace {

bool is_mounted(const fs::path& inside) {
  std::error_code ignored;
  return fs::exists(inside, ignored);
}

// What else a process without /proc and /sys cannot do.
void add_missing_trees(std::vector<SystemFact>& facts) {
  if (!is_mounted("/proc/self"))
    facts.push_back(
        {"/proc", "not mounted",
         "weft reaches every peer by the network, since it cannot tell which are of this host; shm meets "
         "peers up to a millisecond later; weft top finds no process"});
  if (!is_mounted("/sys/kernel")) facts.push_back({"/sys", "not mounted", "weft nic finds no network cards"});
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
  const fs::path online = "/sys/devices/system/cpu/online";
  const unsigned all = count_in_list(text_of(online));
  SystemFact fact{
      "processors",
      all != 0 ? fmt::format("{} of {} for this process, {}", usable, all, name)
               : fmt::format("{} for this process, of how many is {}, {}", usable, unknown(online), name),
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
  return {"caches of a processor", value.empty() ? unknown(folder) : value, ""};
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
  if (pipe(ends.data()) != 0) {
    fact.value = fmt::format("unknown (pipe: {})", std::strerror(errno));
    return fact;
  }
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
    fact.cost =
        "an endpoint takes 4 to 8, each peer over shm one, each connection one: peers beyond that are not "
        "met";
  return fact;
}

SystemFact file_size() {
  rlimit limit{};
  (void)getrlimit(RLIMIT_FSIZE, &limit);
  SystemFact fact{"size of a file (ulimit -f)",
                  limit.rlim_cur == RLIM_INFINITY ? "without limit" : bytes_text(limit.rlim_cur), ""};
  if (limit.rlim_cur < rlim_t{1} << 30)
    fact.cost =
        "the memory file of shm counts, 1 MiB and 12 KiB for each peer that is sent to: peers beyond that "
        "are refused";
  return fact;
}

SystemFact mappings() {
  const fs::path path = "/proc/sys/vm/max_map_count";
  const std::string text = text_of(path);
  SystemFact fact{"mappings of a process (vm.max_map_count)", text.empty() ? unknown(path) : text, ""};
  if (!text.empty() && number_after(text, "") < 65'530)
    fact.cost = "each peer over shm takes up to 4: peers beyond that are not met";
  return fact;
}

// Of a container or a service.
void add_group_limits(std::vector<SystemFact>& facts) {
  constexpr const char* processors_name = "processor time (cgroup)";
  constexpr const char* memory_name = "memory (cgroup)";
  for (const fs::path path : {"/proc/self/cgroup", "/sys/fs/cgroup"}) {
    if (path == "/sys/fs/cgroup" ? !names_in(path).empty() : !text_of(path).empty()) continue;
    facts.push_back({processors_name, unknown(path), ""});
    facts.push_back({memory_name, unknown(path), ""});
    return;
  }
  const CgroupLimits limits = cgroup_limits("/sys/fs/cgroup", text_of("/proc/self/cgroup"));
  facts.push_back({processors_name, "without limit", ""});
  if (limits.processors) {
    facts.back().value = fmt::format("of {:.2f} processors", *limits.processors);
    facts.back().cost =
        "a process that polls uses up its time, and the kernel stops it until the next period, 100 ms as a "
        "rule: give whole processors instead (cpuset), or sleep (fi_cq_sread, FI_WAIT_FD)";
  }
  facts.push_back({memory_name, "without limit", ""});
  if (limits.memory_bytes) {
    facts.back().value = bytes_text(*limits.memory_bytes);
    facts.back().cost =
        "shared memory and unexpected messages count, up to 1 MiB a peer over shm and 32 MiB an endpoint: "
        "beyond it the kernel kills a process of the group";
  }
}

SystemFact huge_pages() {
  const fs::path path = "/proc/meminfo";
  const std::string memory = text_of(path);
  if (number_after(memory, "Hugepagesize:") < 0) return {"huge pages", unknown(path), ""};
  const long long total = number_after(memory, "HugePages_Total:");
  const long long left = number_after(memory, "HugePages_Free:");
  SystemFact fact{"huge pages",
                  fmt::format("{} of {} kB, {} free", total, number_after(memory, "Hugepagesize:"), left),
                  ""};
  if (left <= 0) fact.cost = "only for network cards by VFIO: more mappings for the same memory";
  return fact;
}

// What the kernel grants of a large wish, doubled as it does (socket(7)). -1: nothing is known.
long long largest_socket_buffer() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  int bytes = 1 << 30;
  socklen_t length = sizeof bytes;
  const bool known = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0 &&
                     getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &length) == 0;
  if (fd >= 0) (void)close(fd);
  return known ? bytes / 2 : -1;
}

SystemFact socket_buffer() {
  const fs::path path = "/proc/sys/net/core/rmem_max";
  long long bytes = number_after(text_of(path), "");
  if (bytes < 0) bytes = largest_socket_buffer();
  SystemFact fact{"socket buffer (net.core.rmem_max)",
                  bytes < 0 ? unknown(path) : fmt::format("{} bytes", bytes), ""};
  if (bytes >= 0 && bytes < (4 << 20) && geteuid() != 0)
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
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (const auto& [name, addresses] : found) {
    ifreq wanted{};
    name.copy(wanted.ifr_name, sizeof wanted.ifr_name - 1);
    const bool known = ioctl(fd, SIOCGIFMTU, &wanted) == 0;
    facts.push_back({"interface " + name,
                     fmt::format("{}; MTU {}", addresses, known ? std::to_string(wanted.ifr_mtu) : "unknown"),
                     ""});
  }
  if (fd >= 0) (void)close(fd);
  return facts;
}

SystemFact iommu_groups() {
  const fs::path folder = "/sys/kernel/iommu_groups";
  const size_t groups = names_in(folder).size();
  size_t given = 0;
  for (const std::string& name : names_in("/dev/vfio")) given += name != "vfio" ? 1 : 0;
  SystemFact fact{"IOMMU groups, of these for programs (VFIO)", fmt::format("{}, {}", groups, given), ""};
  if (!is_mounted("/sys/kernel")) {
    fact.value = unknown(folder);
    fact.cost = "no network card can be driven by Weft itself: cards are found in /sys";
    return fact;
  }
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
  const fs::path folder = "/sys/class/infiniband";
  if (!is_mounted("/sys/kernel")) return {"RDMA devices of the kernel", unknown(folder), ""};
  for (const std::string& name : names_in(folder)) value += (value.empty() ? "" : ", ") + name;
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
  std::vector<SystemFact> facts = {{"kernel", fmt::format("{} {}", kernel.sysname, kernel.release), ""}};
  add_missing_trees(facts);
  for (SystemFact (*one)() : {processors, caches, placement}) facts.push_back(one());
  add_group_limits(facts);
  facts.push_back(cross_memory());
  for (SystemFact& one : tried_calls()) facts.push_back(std::move(one));
  for (SystemFact (*one)() :
       {descriptors, file_size, mappings, locked_memory, huge_pages, socket_buffer, user_namespaces})
    facts.push_back(one());
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
