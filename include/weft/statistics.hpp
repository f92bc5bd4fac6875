// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The statistics page: what a process that has endpoints, verbs devices or queue pairs open shows of them while it runs
// (docs/statistics.md). Layout, names, and a reader that trusts nothing of what it reads.
//
// A page is a memory file (memfd_create(2)) with the name `file_name`, which a process keeps open and has mapped, and
// which the other processes of its user find in /proc/PID/fd. Nobody but its owner can write to it, neither side waits
// for the other, and it ends with its owner, however that ends.
//
//   offset 0                          Header
//   header_bytes + i * entry_bytes    Entry, i < Header::entries
//
// All fields are in the order of the machine's bytes. Versions: fields are added at the end of Header and Entry, inside
// of the sizes that the header says, and values behind the last one that is known; a reader passes over what it does
// not know. `version` changes when that is not enough.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::statistics {

inline constexpr uint64_t magic = 0x3154415453544657;  // "WFTSTAT1"
inline constexpr uint32_t version = 1;
inline constexpr const char* file_name = "weft-statistics";
// What readlink(2) of /proc/PID/fd/N says.
inline constexpr std::string_view link_text = "/memfd:weft-statistics (deleted)";

enum class Kind : uint32_t {
  None = 0,  // the place is free
  Endpoint = 1,
  Device = 2,
  QueuePair = 3,
  Path = 4,  // by which an endpoint, its parent, reaches peers
};
inline constexpr std::array<std::string_view, 5> kind_names = {"none", "endpoint", "device", "queue_pair",
                                                               "path"};

// What an entry may show. Entry::present has a bit for each that it does; the numbers stay what they are for ever.
enum class Value : uint32_t {
  PacketsSent = 0,
  PacketsReceived = 1,
  BytesSent = 2,
  BytesReceived = 3,
  Retransmissions = 4,
  NaksSent = 5,
  NaksReceived = 6,
  Timeouts = 7,
  Duplicates = 8,
  Gaps = 9,
  IcrcErrors = 10,
  Malformed = 11,
  Lost = 12,
  NearSent = 13,
  NearReceived = 14,
  CongestionMarks = 15,
  Peers = 16,
  SendQueue = 17,
  ReceiveQueue = 18,
  CompletionQueue = 19,
  State = 20,
  Number = 21,
  PeerNumber = 22,
  RoundTripNs = 23,
  NoticesSent = 24,
  NoticesReceived = 25,
  SelectiveRetransmissions = 26,
  Kept = 27,
  MessagesSent = 28,
  MessagesReceived = 29,
  Unexpected = 30,
  TooLong = 31,
  Assumed = 32,
  UnreportedErrors = 33,
};
inline constexpr size_t values_max = 40;  // that an entry has room for

struct ValueInfo {
  std::string_view name;
  bool is_counter;  // only grows; others are of the moment
  std::string_view help;
};
inline constexpr std::array<ValueInfo, 34> value_infos = {{
    {"packets_sent", true, "Packets sent; frames of shm and tcp."},
    {"packets_received", true, "Packets received; frames of shm and tcp."},
    {"bytes_sent", true, "Bytes of payload sent; of shm those that have no room in a slot of the ring."},
    {"bytes_received", true,
     "Bytes of payload received; of shm those that have no room in a slot of the ring."},
    {"retransmissions", true, "Packets sent again."},
    {"naks_sent", true, "Negative acknowledgements sent, RNR among them."},
    {"naks_received", true, "Negative acknowledgements received, RNR among them."},
    {"timeouts", true, "Times that no answer came in time."},
    {"duplicates", true, "Packets that had come before."},
    {"gaps", true, "Packets that came before one that was missing."},
    {"icrc_errors", true, "Packets with a wrong ICRC, dropped."},
    {"malformed", true, "Packets or peers whose bytes make no sense, dropped."},
    {"lost", true, "Packets found lost on the way, or dropped for a receiver that takes nothing."},
    {"near_packets_sent", true, "Of the packets sent: by shared memory."},
    {"near_packets_received", true, "Of the packets received: by shared memory."},
    {"congestion_marks", true, "Packets marked for congestion (ECN), and congestion notices."},
    {"peers", false, "Peers known now."},
    {"send_queue", false, "Requests posted to send and not complete; frames that the peers have not read."},
    {"receive_queue", false, "Receive requests posted and not used."},
    {"completion_queue", false, "Completions that the program has not polled."},
    {"state", false, "State of the queue pair, as ibv_qp_state counts."},
    {"number", false, "Number of the queue pair."},
    {"peer_number", false, "Number of the peer's queue pair."},
    {"round_trip_ns", false, "Smoothed round-trip time of the peer heard last, nanoseconds."},
    {"congestion_notices_sent", true, "Congestion notices (CNP) sent, for packets that came marked."},
    {"congestion_notices_received", true, "Congestion notices (CNP) of peers: a queue pair sends less."},
    {"selective_retransmissions", true, "Of the packets sent again: alone, as the peer asked for them."},
    {"kept", true, "Packets that came before one that was missing, and were kept."},
    {"messages_sent", true, "Messages, RMA operations and atomics that the program has given to send."},
    {"messages_received", true, "Receive requests that have ended, and messages in buffers for several."},
    {"unexpected", false, "Messages that have come before a receive for them was posted."},
    {"too_long", true, "Messages of UD and UC longer than the posted receive, dropped."},
    {"assumed_bytes", true, "Bytes sent to silent peers that count as delivered without an acknowledgement."},
    {"unreported_errors", true,
     "Errors without a completion entry: injects that failed, and lost peers that may not have read "
     "messages."},
}};

struct Header {
  std::atomic<uint64_t> magic;  // stored last
  uint32_t version;
  uint32_t header_bytes;
  uint32_t entry_bytes;
  uint32_t entries;  // places
  int32_t pid;       // of the owner, in its pid namespace
  uint32_t reserved;
  uint64_t opened_ns;              // clock of the day
  std::atomic<uint64_t> unlisted;  // objects that found no place
  std::array<char, 32> library;    // "libfabric.so.1", zero-terminated as all texts are
  std::array<char, 64> program;    // as comm of proc(5)
};

// One object. The owner makes `generation` odd before it changes what stands above the values, and even afterwards;
// who read it meanwhile reads again.
struct Entry {
  std::atomic<uint32_t> generation;
  std::atomic<uint32_t> kind;
  std::atomic<uint32_t> id;       // unique within the page for ever
  std::atomic<uint32_t> parent;   // id of the device that a queue pair is of, of a path's endpoint; 0: none
  std::atomic<uint64_t> present;  // bit v: values[v] is there
  std::atomic<uint64_t> opened_ns;
  std::array<std::atomic<char>, 32> name;     // provider, path or device: "weft", "shm", "weft_eth0", "RC"
  std::array<std::atomic<char>, 128> detail;  // address
  std::array<std::atomic<uint64_t>, values_max> values;
};
static_assert(sizeof(Header) <= 4096 && sizeof(Entry) == 512);
static_assert(offsetof(Header, unlisted) == 40 && offsetof(Header, program) == 80);
static_assert(offsetof(Entry, name) == 32 && offsetof(Entry, values) == 192);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<char>::is_always_lock_free);

inline constexpr size_t header_bytes = 4096;
inline constexpr size_t entries = 1024;
inline constexpr size_t page_bytes = header_bytes + entries * sizeof(Entry);
// What a reader accepts: twice what this version writes.
inline constexpr size_t page_bytes_max = size_t{1} << 20;

// --- what a reader has ---

struct Object {
  Kind kind = Kind::None;
  uint32_t id = 0;
  uint32_t parent = 0;
  uint64_t opened_ns = 0;
  std::string name;
  std::string detail;
  uint64_t present = 0;  // of the values that this reader knows
  std::array<uint64_t, value_infos.size()> values{};

  bool has(Value value) const noexcept { return (present >> static_cast<uint32_t>(value) & 1) != 0; }
  uint64_t operator[](Value value) const noexcept { return values[static_cast<uint32_t>(value)]; }
};

struct Process {
  int pid = 0;  // as the reader sees it
  std::string library;
  std::string program;
  uint64_t opened_ns = 0;
  uint64_t unlisted = 0;
  std::vector<Object> objects;
};

// Text of a stranger: what is not printable ASCII is '?', so that no terminal obeys it. Ends at the first zero.
inline std::string printable(const char* at, size_t bytes_max) {
  std::string text;
  for (size_t i = 0; i < bytes_max && at[i] != 0; ++i)
    text.push_back(at[i] >= ' ' && at[i] <= '~' ? at[i] : '?');
  return text;
}

// Copies a mapped page word by word while its owner writes: each number of the copy is whole. An entry whose owner was
// about to change it has an odd generation in the copy. `mapping` is aligned to 8 bytes. Acquire: the words are read in
// the order of their addresses, the generation and the bits of `present` before what they speak for.
inline std::vector<std::byte> copy_of(const std::byte* mapping, size_t bytes) {
  std::vector<std::byte> page(bytes / sizeof(uint64_t) * sizeof(uint64_t));
  const auto word = [&](size_t at) {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(mapping + at), __ATOMIC_ACQUIRE);
  };
  for (size_t at = 0; at < page.size(); at += sizeof(uint64_t)) {
    const uint64_t value = word(at);
    std::memcpy(page.data() + at, &value, sizeof value);
  }
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the owner's store of an odd generation
  for (size_t at = header_bytes; at + sizeof(Entry) <= page.size(); at += sizeof(Entry)) {
    const auto now = static_cast<uint32_t>(word(at));
    uint32_t copied;
    std::memcpy(&copied, page.data() + at, sizeof copied);
    if (now != copied) page[at] |= std::byte{1};
  }
  return page;
}

// Reads a copy of a page. Empty: it is none, or of a version that this reader does not know. Entries with an odd
// generation are left out. A copy may end early: its places are those that are wholly there.
inline std::optional<Process> parse(std::span<const std::byte> page) {
  const auto number = [&](size_t at, auto kind) {
    decltype(kind) value;
    std::memcpy(&value, page.data() + at, sizeof value);
    return value;
  };
  if (page.size() < sizeof(Header) || page.size() > page_bytes_max) return {};
  if (number(offsetof(Header, magic), uint64_t{}) != magic ||
      number(offsetof(Header, version), uint32_t{}) != version)
    return {};
  const uint64_t head = number(offsetof(Header, header_bytes), uint32_t{});
  const uint64_t each = number(offsetof(Header, entry_bytes), uint32_t{});
  const uint64_t places = number(offsetof(Header, entries), uint32_t{});
  if (head < sizeof(Header) || each < sizeof(Entry) || head > page.size()) return {};
  const uint64_t count = std::min<uint64_t>(places, (page.size() - head) / each);
  const auto text = [&](size_t at, size_t bytes) {
    return printable(reinterpret_cast<const char*>(page.data() + at), bytes);
  };
  Process process;
  process.pid = number(offsetof(Header, pid), int32_t{});
  process.opened_ns = number(offsetof(Header, opened_ns), uint64_t{});
  process.unlisted = number(offsetof(Header, unlisted), uint64_t{});
  process.library = text(offsetof(Header, library), sizeof(Header::library));
  process.program = text(offsetof(Header, program), sizeof(Header::program));
  for (uint64_t i = 0; i < count; ++i) {
    const size_t at = head + i * each;
    const auto kind = number(at + offsetof(Entry, kind), uint32_t{});
    if (kind == 0 || kind >= kind_names.size() ||
        number(at + offsetof(Entry, generation), uint32_t{}) % 2 != 0)
      continue;
    Object object;
    object.kind = static_cast<Kind>(kind);
    object.id = number(at + offsetof(Entry, id), uint32_t{});
    object.parent = number(at + offsetof(Entry, parent), uint32_t{});
    object.opened_ns = number(at + offsetof(Entry, opened_ns), uint64_t{});
    object.present =
        number(at + offsetof(Entry, present), uint64_t{}) & ((uint64_t{1} << value_infos.size()) - 1);
    object.name = text(at + offsetof(Entry, name), sizeof(Entry::name));
    object.detail = text(at + offsetof(Entry, detail), sizeof(Entry::detail));
    for (size_t v = 0; v < value_infos.size(); ++v)
      if ((object.present >> v & 1) != 0)
        object.values[v] = number(at + offsetof(Entry, values) + v * sizeof(uint64_t), uint64_t{});
    process.objects.push_back(std::move(object));
  }
  return process;
}

}  // namespace weft::statistics
