// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A named address vector (fi_av(3), "name") is made by one process, read by others while it lives, and gone with it.
//
//   named_av_test [--provider shm]
#include "peer.hpp"

#include <weft/libfabric_retired.hpp>

namespace weft::system_test {
namespace {

struct Board {
  Name name;
  std::atomic<int> phase{0};  // what the maker has done
  std::atomic<int> seen{0};   // what the reader has seen
};

struct Domain {
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;

  explicit Domain(const std::string& provider) {
    fi_info* hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED | FI_SHARED_AV;
    hints->domain_attr->mr_mode = retired::mr_basic | retired::mr_scalable;
    if (fi_getinfo(FI_VERSION(1, 4), nullptr, nullptr, 0, hints, &info) == 0 &&
        fi_fabric(info->fabric_attr, &fabric, nullptr) == 0)
      (void)fi_domain(fabric, info, &domain, nullptr);
    fi_freeinfo(hints);
  }
  int open(const char* name, uint64_t flags, fid_av** av, void** map = nullptr, int bits = 0) const {
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    attr.name = name;
    attr.flags = flags;
    attr.rx_ctx_bits = bits;
    const int status = fi_av_open(domain, &attr, av, nullptr);
    if (status == 0 && map != nullptr) *map = attr.map_addr;
    return status;
  }
};

constexpr const char* shared_name = "named_av_test";

bool wait_for(const std::atomic<int>& value, int at_least) {
  return eventually([&] { return value >= at_least; });
}

// The n-th of many addresses that differ, in the form of `own`.
std::vector<uint8_t> address(const std::vector<uint8_t>& own, uint32_t format, int n) {
  std::vector<uint8_t> made(own.size());
  if (format == FI_ADDR_STR) {
    const bool network = std::memcmp(own.data(), "weft://", 7) == 0;
    std::snprintf(reinterpret_cast<char*>(made.data()), made.size(),
                  network ? "weft://127.0.0.1:%d" : "fi_ns://named-%d", n);
  } else {
    made = own;
    made[2] = static_cast<uint8_t>(n >> 8);  // the port
    made[3] = static_cast<uint8_t>(n);
  }
  return made;
}

// Makes the vector, adds addresses to it in steps, takes one away, and waits to be killed.
int maker(Board& board, const std::string& provider) {
  const Domain d(provider);
  Peer me(provider, FI_TAGGED);
  fid_av* av = nullptr;
  if (d.domain == nullptr || !me.ok() || d.open(shared_name, 0, &av) != 0) return 1;
  me.publish(board.name);
  const std::vector<uint8_t> own = me.name();
  const auto add = [&](int n) {
    fi_addr_t got = FI_ADDR_NOTAVAIL;
    const auto bytes = address(own, d.info->addr_format, n);
    return fi_av_insert(av, bytes.data(), 1, &got, 0, nullptr) == 1 && got == static_cast<fi_addr_t>(n - 1);
  };
  if (!add(1) || !add(2)) return 2;
  board.phase = 1;
  if (!wait_for(board.seen, 1)) return 3;
  for (int n = 3; n <= 1000; ++n)
    if (!add(n)) return 4;
  board.phase = 2;
  if (!wait_for(board.seen, 2)) return 5;
  fi_addr_t gone = 1;
  if (fi_av_remove(av, &gone, 1, 0) != 0) return 6;
  board.phase = 3;
  if (!wait_for(board.seen, 3)) return 7;
  // The lowest free place is used again.
  const auto bytes = address(own, d.info->addr_format, 2000);
  if (fi_av_insert(av, bytes.data(), 1, &gone, 0, nullptr) != 1 || gone != 1) return 8;
  board.phase = 4;
  // A forked child's insertions are its own.
  const pid_t child = fork();
  if (child == 0) {
    const auto more = address(own, d.info->addr_format, 3000);
    fi_addr_t at = 0;
    _exit(fi_av_insert(av, more.data(), 1, &at, 0, nullptr) == 1 ? 0 : 1);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) return 9;
  board.phase = 5;
  for (;;) pause();
}

int reader(Board& board, const std::string& provider) {
  const Domain d(provider);
  fid_av* av = nullptr;
  if (d.domain == nullptr) return 1;
  if (d.open(shared_name, FI_READ, &av) != -FI_ENOENT) return 2;
  if (!wait_for(board.phase, 1)) return 3;
  void* map = nullptr;
  if (d.open(shared_name, 0, &av) != -FI_EACCES) return 4;
  if (d.open(shared_name, FI_READ, &av, &map, 4) != -FI_EINVAL) return 5;
  if (d.open(shared_name, FI_READ, &av, &map) != 0 || map == nullptr) return 6;
  const auto* ids = static_cast<const fi_addr_t*>(map);
  const std::vector<uint8_t> own(board.name.bytes, board.name.bytes + board.name.len);
  const auto shows = [&](fi_addr_t at, int n) {
    uint8_t got[256];
    size_t length = sizeof got;
    return fi_av_lookup(av, at, got, &length) == 0 &&
           std::vector<uint8_t>(got, got + length) == address(own, d.info->addr_format, n);
  };
  const auto nothing = [&](fi_addr_t at) {
    uint8_t got[256];
    size_t length = sizeof got;
    return fi_av_lookup(av, at, got, &length) == -FI_EINVAL;
  };
  if (!shows(0, 1) || !shows(1, 2) || !nothing(2) || ids[0] != 0 || ids[1] != 1) return 7;
  const auto more = address(own, d.info->addr_format, 9);
  fi_addr_t got = 0;
  if (fi_av_insert(av, more.data(), 1, &got, 0, nullptr) != -FI_EACCES) return 8;
  board.seen = 1;
  if (!wait_for(board.phase, 2)) return 9;
  for (int n = 1; n <= 1000; ++n)
    if (!shows(static_cast<fi_addr_t>(n - 1), n)) return 10;
  board.seen = 2;
  if (!wait_for(board.phase, 3)) return 11;
  if (!nothing(1) || ids[1] != FI_ADDR_NOTAVAIL || !shows(0, 1) || !shows(999, 1000)) return 12;
  board.seen = 3;
  if (!wait_for(board.phase, 4) || !shows(1, 2000) || ids[1] != 1) return 13;
  if (!wait_for(board.phase, 5) || !nothing(1000)) return 14;
  // What it has stays when the maker dies.
  board.seen = 4;
  if (!wait_for(board.phase, 6) || !shows(0, 1) || !shows(999, 1000)) return 15;
  return fi_close(&av->fid) == 0 ? 0 : 16;
}

// What another user gets.
int stranger(const std::string& provider) {
  if (setgid(65534) != 0 || setuid(65534) != 0) return 0;
  const Domain d(provider);
  fid_av* av = nullptr;
  if (d.domain == nullptr) return 1;
  return d.open(shared_name, FI_READ, &av) == -FI_ENOENT ? 0 : 2;
}

// After the death of the maker the name is free.
int successor(const std::string& provider) {
  const Domain d(provider);
  fid_av* av = nullptr;
  if (d.domain == nullptr) return 1;
  if (!eventually([&] { return d.open(shared_name, FI_READ, &av) == -FI_ENOENT; })) return 2;
  if (d.open(shared_name, 0, &av) != 0) return 3;
  fid_av* again = nullptr;
  if (d.open(shared_name, FI_READ, &again) != 0) return 4;  // within one process
  return fi_close(&again->fid) == 0 && fi_close(&av->fid) == 0 ? 0 : 5;
}

int run(const std::string& provider) {
  auto& board = *shared_block<Board>();
  const pid_t reading = spawn([&] { return reader(board, provider); });
  // The maker comes when the reader has found nothing.
  usleep(200'000);
  const pid_t making = spawn([&] { return maker(board, provider); });
  if (!eventually([&] { return board.seen >= 4 || waitpid(making, nullptr, WNOHANG) == making; }) ||
      board.seen < 4) {
    std::fprintf(stderr, "phase %d, seen %d\n", board.phase.load(), board.seen.load());
    return 1;
  }
  if (const int other = join(spawn([&] { return stranger(provider); }), milliseconds(10'000)); other != 0) {
    std::fprintf(stderr, "another user: %d\n", other);
    return 1;
  }
  kill(making, SIGKILL);
  waitpid(making, nullptr, 0);
  board.phase = 6;
  if (const int rc = join(reading, milliseconds(20'000)); rc != 0) {
    std::fprintf(stderr, "reader: %d\n", rc);
    return 1;
  }
  if (const int rc = join(spawn([&] { return successor(provider); }), milliseconds(20'000)); rc != 0) {
    std::fprintf(stderr, "successor: %d\n", rc);
    return 1;
  }
  std::printf("named_av_test: passed\n");
  return 0;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  if (arguments.number("no-op", 0) != 0) return 0;
  alarm(60);
  const Leftovers leftovers;
  const int rc = run(arguments.provider());
  return leftovers.none() ? rc : 1;
}
