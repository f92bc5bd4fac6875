// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The table of settings.
#include "base/settings.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>

namespace weft::settings {
namespace {

constexpr uint64_t int_max = 0x7fffffff;

constexpr std::array<std::string_view, 2> progress_words = {"auto", "manual"};

constexpr std::array<std::string_view, 4> copy_words = {"auto", "ring", "receiver", "both"};

constexpr std::array<std::string_view, 4> verbs_log_words = {"none", "error", "warn", "info"};

constexpr std::array<std::string_view, 3> yield_words = {"auto", "never", "always"};

constexpr std::array<Setting, 32> table = {{
    {"FI_PROVIDER", Kind::Text, 0, 0, 0,
     "Providers to use, separated by commas; ^ before the list means all but those (default: all)"},
    {"FI_PROVIDER_PATH", Kind::Text, 0, 0, 0, "Directories with plugins (*fi.so), with colons between"},
    {"FI_LOG_LEVEL", Kind::Text, 0, 0, 0,
     "What is logged: warn, trace, info, debug, or none (default: warn)"},
    {"FI_LOG_PROV", Kind::Text, 0, 0, 0,
     "Providers that log, separated by commas; ^ before the list means all but those (default: all)"},
    {"FI_LOG_SUBSYS", Kind::Text, 0, 0, 0,
     "Subsystems that log: core, fabric, domain, ep_ctrl, ep_data, av, cq, eq, mr, cntr; ^ before the "
     "list means all but those (default: all)"},
    {"FI_LOG_INTERVAL", Kind::Number, 0, int_max, 2000,
     "Milliseconds between two log lines of one place that limits its rate (default: 2000 ms)"},
    {"WEFT_CONFIG", Kind::Text, 0, 0, 0,
     "A file of lines NAME = value for the other settings; the environment wins (default: /etc/weft.conf)"},
    {"WEFT_RELIABLE_TIMEOUT_S", Kind::Number, 1, 999'999, 60,
     "udp;ofi_rxd and other layers over packets: seconds of silence after which a peer is dead, 1 to 999999 "
     "(default: 60 s)"},
    {"WEFT_RELIABLE_ASSUME", Kind::Number, 0, 100, 4,
     "udp;ofi_rxd and other layers over packets: timeouts in a row without an answer after which what a "
     "silent peer was sent counts as delivered, 0 to 100; 0: only what it has acknowledged (default: 4)"},
    {"WEFT_PACKET_FAULTS", Kind::Text, 0, 0, 0,
     "For tests, packets that are lost, duplicated, delayed, reordered or altered: "
     "loss=PERCENT,twice=PERCENT,late=PERCENT,reorder=PERCENT,corrupt=PERCENT,mark=PERCENT,seed=N (default: "
     "none)"},
    {"WEFT_PCAP", Kind::Text, 0, 0, 0,
     "File that gets a copy of every packet, for tshark and Wireshark; a second endpoint, and a name that is "
     "taken, get NAME.PID.N (default: none)"},
    {"WEFT_STATS", Kind::Text, 0, 0, 0,
     "File that gets the counters of endpoints, devices and queue pairs at exit, as JSON, or as text for "
     "Prometheus if its name ends in .prom; a name that is taken gets NAME.PID.N (default: none)"},
    {"WEFT_PROGRESS", Kind::Word, 0, 0, 0,
     "Who makes progress: auto (a thread for every domain), manual (no thread at all; FI_PROGRESS_AUTO is "
     "refused) (default: what the program asks for, and a thread that sends again what is lost)",
     progress_words},
    {"WEFT_YIELD", Kind::Word, 0, 0, 0,
     "Whether a program yields its CPU (sched_yield(2)) after empty polls: auto, never, always (after 64 of "
     "them) "
     "(default: auto, to other programs that poll)",
     yield_words},
    {"WEFT_INJECT_ERRORS", Kind::Flag, 0, 1, 0,
     "1: error entries with a null op_context for what has no completion and failed: injects, and messages "
     "to a "
     "peer that has gone (default: 0, a warning, and a count in weft top)"},
    {"WEFT_CMA", Kind::Flag, 0, 1, 1,
     "shm and weft: 0 never reads or writes the memory of another process by itself (process_vm_readv(2)) "
     "(default: 1, where it is allowed)"},
    {"WEFT_SHM_COPY", Kind::Word, 0, 0, 0,
     "shm and weft, how messages above 8 KiB are copied: auto, ring (through shared memory), receiver (it "
     "reads "
     "the sender's memory), both (both sides at once) (default: auto, by what each way takes)",
     copy_words},
    {"WEFT_NIC", Kind::Text, 0, 0, 0,
     "Network cards that this process drives by VFIO, and their addresses: "
     "PCI-ADDRESS=IP/PREFIX[,gateway=IP][,mtu=BYTES][,vlan=ID], with semicolons between (default: none)"},
    {"WEFT_VERBS_DEVICES", Kind::Text, 0, 0, 0,
     "libibverbs.so.1: devices by name and address, NAME=ADDRESS, with commas between (default: "
     "weft_INTERFACE for each)"},
    {"WEFT_VERBS_PORT", Kind::Number, 0, 65535, 0,
     "libibverbs.so.1: UDP port of GID 0; 0: the system chooses (default: 0)"},
    {"WEFT_VERBS_STANDARD_GID", Kind::Flag, 0, 1, 0,
     "libibverbs.so.1: 1: take UDP port 4791, for peers that are no Weft: GID 1 (IPv4) and 2 (IPv6) "
     "(default: 0)"},
    {"WEFT_VERBS_MTU", Kind::Number, 256, 4096, 0,
     "libibverbs.so.1: active MTU of the port in bytes: 256, 512, 1024, 2048 or 4096 (default: by the "
     "interface)"},
    {"WEFT_VERBS_SHM", Kind::Flag, 0, 1, 1,
     "libibverbs.so.1: 0: UDP also to devices of this host and user, never shared memory (default: 1)"},
    {"WEFT_VERBS_SELECTIVE", Kind::Flag, 0, 1, 1,
     "libibverbs.so.1: 0: what follows a lost packet is repeated with it, also between devices of Weft "
     "(default: 1)"},
    {"WEFT_VERBS_PACKET_RING", Kind::Number, 0, 1'048'576, 8192,
     "libibverbs.so.1: KiB of the ring in which a device over a packet socket receives; 0: no ring, each "
     "poll "
     "is a system call (default: 8192 KiB)"},
    {"WEFT_VERBS_PROVIDERS", Kind::Text, 0, 0, 0,
     "libibverbs.so.1: shared objects with more verbs devices, with colons between (default: none)"},
    {"WEFT_VERBS_LOG", Kind::Word, 0, 0, 0,
     "libibverbs.so.1: what is logged: none, error, warn, info (default: warn)", verbs_log_words},
    {"FI_TCP_IFACE", Kind::Text, 0, 0, 0,
     "tcp, tcp;ofi_rxm: the network interface whose domain fi_getinfo lists; weft: the interface towards "
     "other "
     "hosts (default: all)"},
    {"FI_UDP_IFACE", Kind::Text, 0, 0, 0,
     "udp, udp;ofi_rxd: the network interface whose domain fi_getinfo lists (default: all)"},
    {"FI_WEFT_SHM", Kind::Flag, 0, 1, 1, nullptr},
    {"FI_TCP_CONNECT_TIMEOUT", Kind::Number, 1, 86'400'000, 10'000, nullptr},
    {"FI_TCP_ACCEPT_TIMEOUT", Kind::Number, 1, 86'400'000, 60'000, nullptr},
}};

const char* environment(const char* name) noexcept { return std::getenv(name); }
std::atomic<Lookup> lookup{environment};

constexpr size_t name_length_max = 64;
constexpr size_t distance_max = 2;

// Levenshtein's distance, or more than distance_max when it is more.
constexpr std::array<FormerName, 2> former = {{
    {"FI_WEFT_NEAR", "FI_WEFT_SHM"},
    {"WEFT_VERBS_NEAR", "WEFT_VERBS_SHM"},
}};

size_t distance(std::string_view a, std::string_view b) noexcept {
  if (a.size() > name_length_max || b.size() > name_length_max) return distance_max + 1;
  std::array<size_t, name_length_max + 1> row;
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

const char* read(const Setting& setting) noexcept {
  const Lookup from = lookup.load(std::memory_order_acquire);
  if (const char* text = from(setting.name.data())) return text;
  const char* name = former_name_of(setting.name);
  return name != nullptr ? from(name) : nullptr;
}

bool same_word(std::string_view text, std::string_view word) noexcept {
  return std::equal(text.begin(), text.end(), word.begin(), word.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

}  // namespace

std::span<const Setting> all() noexcept { return table; }

const Setting* find(std::string_view name) noexcept {
  const auto* found = std::find_if(table.begin(), table.end(),
                                   [name](const Setting& setting) { return setting.name == name; });
  return found == table.end() ? nullptr : found;
}

std::optional<bool> parse_flag(std::string_view text) noexcept {
  for (const std::string_view yes : {"1", "on", "true", "yes", "y", "t"})
    if (same_word(text, yes)) return true;
  for (const std::string_view no : {"0", "off", "false", "no", "n", "f"})
    if (same_word(text, no)) return false;
  return std::nullopt;
}

std::optional<uint64_t> parse(const Setting& setting, std::string_view text) noexcept {
  if (setting.kind == Kind::Flag) return parse_flag(text);
  if (setting.kind == Kind::Text) return 0;
  if (setting.kind == Kind::Word) {
    for (size_t i = 0; i < setting.words.size(); ++i)
      if (same_word(text, setting.words[i])) return i + 1;
    return std::nullopt;
  }
  uint64_t value = 0;
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    text.remove_prefix(2);
    base = 16;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < setting.least || value > setting.most) return std::nullopt;
  return value;
}

std::string accepted(const Setting& setting) {
  if (setting.kind == Kind::Flag) return "one of 0, 1, on, off, true, false, yes, no";
  if (setting.kind == Kind::Text) return "a text";
  if (setting.kind == Kind::Word) {
    std::string words;
    for (const std::string_view word : setting.words)
      words.append(words.empty() ? "one of " : ", ").append(word);
    return words;
  }
  if (setting.most == UINT64_MAX) return "a number of " + std::to_string(setting.least) + " or more";
  return "a number from " + std::to_string(setting.least) + " to " + std::to_string(setting.most);
}

std::string used_instead(const Setting& setting) {
  if (setting.kind == Kind::Flag) return setting.otherwise != 0 ? "yes" : "no";
  // A number that nobody can set stands for what the program finds out by itself.
  const bool is_found_out = setting.otherwise < setting.least || setting.otherwise > setting.most;
  if (setting.kind != Kind::Number || is_found_out) return "the default";
  return std::to_string(setting.otherwise);
}

std::span<const FormerName> former_names() noexcept { return former; }

const char* former_name_of(std::string_view name) noexcept {
  const auto* found =
      std::find_if(former.begin(), former.end(), [name](const FormerName& one) { return one.name == name; });
  return found == former.end() ? nullptr : found->former.data();
}

std::string_view name_of_former(std::string_view name) noexcept {
  const auto* found = std::find_if(former.begin(), former.end(),
                                   [name](const FormerName& one) { return one.former == name; });
  return found == former.end() ? std::string_view() : found->name;
}

uint64_t number(std::string_view name) noexcept {
  const Setting* setting = find(name);
  if (setting == nullptr) return 0;
  const char* text = read(*setting);
  return text != nullptr ? parse(*setting, text).value_or(setting->otherwise) : setting->otherwise;
}

bool flag(std::string_view name) noexcept { return number(name) != 0; }

const char* text(std::string_view name) noexcept {
  const Setting* setting = find(name);
  return setting != nullptr ? read(*setting) : nullptr;
}

void look_up_with(Lookup other) noexcept { lookup.store(other, std::memory_order_release); }

std::string_view nearest(std::string_view name) noexcept {
  constexpr size_t letters_each =
      3;  // of what follows the prefix: so many for each mistake, as STATS is not meant by STAGE
  std::string_view best;
  size_t least = distance_max + 1;
  for (const Setting& setting : table) {
    const size_t away = distance(name, setting.name);
    const size_t letters = setting.name.size() - setting.name.find('_') - 1;
    if (away < least && away * letters_each <= letters) {
      least = away;
      best = setting.name;
    }
  }
  return best;
}

}  // namespace weft::settings
