// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Hostile handshakes to an endpoint of the shared memory link: notes whose bytes, and descriptors whose kinds, the input chooses, from this user
// and from another. The endpoint must not crash, nor hang, and no poll of it may sleep. WEFT_FUZZ_FUSE names a file of a FUSE file system.
#include <fcntl.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "link/shm/handshake.hpp"
#include "link/shm/link.hpp"
#include "os/clock.hpp"
#include "os/process.hpp"
#include "os/unix_socket.hpp"

namespace {

using namespace weft;
using namespace weft::link::shm;

constexpr uid_t other_user = 65534;
constexpr uint64_t longest_poll_ns =
    1'500'000'000;  // a sanitizer on a busy machine; the sockets linger for longer
constexpr int linger_seconds = 4;

struct Owner final : Events {
  Peer* make_peer(std::span<const std::byte>) override {
    peers.push_back(std::make_unique<Peer>());
    return peers.back().get();
  }
  void peer_lost(Peer& peer, core::ProviderError) noexcept override {
    std::erase_if(peers, [&](const auto& entry) { return entry.get() == &peer; });
  }
  bool on_frame(Peer&, const wire::FrameHead&, const std::byte*) noexcept { return true; }
  std::vector<std::unique_ptr<Peer>> peers;
  Link link;
};

class HostileHandshakes {
 public:
  HostileHandshakes(const uint8_t* data, size_t size) : in_(data, size) {
    socket_ = os::Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!owner_.link.open("", owner_) || !socket_) std::abort();
    std::copy_n(reinterpret_cast<const char*>(owner_.link.address().data()), victim_.size(), victim_.begin());
  }

  void run() {
    for (int i = 0; i < 12 && in_.remaining_bytes() > 0; ++i) {
      switch (in_.ConsumeIntegralInRange<int>(0, 7)) {
        case 0:
          timed([&] { (void)owner_.link.poll(owner_); });
          break;
        case 1:
          (void)owner_.link.arm();
          owner_.link.disarm();
          break;
        case 2:
          meet();
          break;
        default:
          send_hello();
      }
    }
    for (int i = 0; i < 3; ++i)
      timed([&] {
        owner_.link.disarm();  // the next poll looks around
        (void)owner_.link.poll(owner_);
      });
    timed([&] { owner_.link.close(); });
  }

 private:
  // ns that this thread has waited for a processor: what others made it wait is not counted below.
  static uint64_t waited() {
    unsigned long long ran = 0, waited = 0;
    if (std::FILE* file = std::fopen("/proc/thread-self/schedstat", "r")) {
      if (std::fscanf(file, "%llu %llu", &ran, &waited) != 2) waited = 0;
      std::fclose(file);
    }
    return waited;
  }
  template <class Body>
  static void timed(Body&& body) {
    const uint64_t waited_before = waited();
    const uint64_t before = os::monotonic_ns();
    body();
    const uint64_t took = os::monotonic_ns() - before;
    const uint64_t kept_waiting = waited() - waited_before;
    if (took <= longest_poll_ns + kept_waiting) return;
    std::fprintf(stderr, "a call slept for %llu ms\n", static_cast<unsigned long long>(took / 1'000'000));
    std::abort();
  }

  // A memory file whose seals and size the input chooses, with a header that may be sound.
  os::Fd memory() {
    const unsigned flags =
        in_.PickValueInArray({0U, static_cast<unsigned>(MFD_ALLOW_SEALING), MFD_ALLOW_SEALING | MFD_HUGETLB});
    os::Fd file(::memfd_create("fuzz", MFD_CLOEXEC | flags));
    if (!file) return file;
    const size_t size = in_.PickValueInArray<size_t>({0, 1, page_bytes, header_bytes - 1, header_bytes,
                                                      header_bytes + channel_bytes - 1,
                                                      header_bytes + channel_bytes, size_t{2} << 20});
    (void)::ftruncate(file.get(), static_cast<off_t>(size));
    if (in_.ConsumeBool()) {
      RegionHeader header{};
      header.magic = region_magic;
      header.version = layout_version;
      header.nonce = nonce;
      header.header_size = header_bytes;
      header.channel_size = channel_bytes;
      header.probe_address = in_.ConsumeIntegral<uint64_t>();
      header.fences = in_.ConsumeIntegral<uint8_t>();
      std::copy_n(name, sizeof(name), header.address.begin());
      (void)!::pwrite(file.get(), &header, sizeof(header), 0);
    }
    if (in_.ConsumeBool())
      (void)::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, page_bytes);
    (void)::fcntl(file.get(), F_ADD_SEALS, in_.ConsumeIntegralInRange<int>(0, 0x1f));
    return file;
  }

  os::Fd unix_socket(int type) {
    std::array<int, 2> ends{-1, -1};
    if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) return {};
    const os::Fd other(ends[1]);
    if (in_.ConsumeBool()) (void)!::write(ends[1], "unread", 6);
    return os::Fd(ends[0]);
  }

  os::Fd lingering() {
    const os::Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    os::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* address = reinterpret_cast<sockaddr*>(&at);
    socklen_t length = sizeof(at);
    const int small = 4096;
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    (void)::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    if (::bind(listener.get(), address, sizeof(at)) != 0 || ::listen(listener.get(), 1) != 0 ||
        ::getsockname(listener.get(), address, &length) != 0 ||
        ::connect(socket.get(), address, sizeof(at)) != 0)
      return socket;
    others_.emplace_back(::accept(listener.get(), nullptr, nullptr));
    (void)::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
    const std::vector<char> bytes(1 << 14);
    while (::write(socket.get(), bytes.data(), bytes.size()) > 0) {
    }
    const linger how{1, linger_seconds};
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &how, sizeof(how));
    return socket;
  }

  os::Fd pipe_end() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return {};
    const bool reads = in_.ConsumeBool();
    if (in_.ConsumeBool()) others_.emplace_back(::dup(ends[reads ? 1 : 0]));
    ::close(ends[reads ? 1 : 0]);
    return os::Fd(ends[reads ? 0 : 1]);
  }

  os::Fd descriptor() {
    static const std::array<const char*, 12> paths{
        "/dev/shm",  "/",         "/proc/self/status", "/proc/self/mem", "/sys/kernel/mm", "/dev/null",
        "/dev/zero", "/dev/ptmx", "/proc/self/ns/net", "/dev/full",      "/etc/passwd",    "/proc/self/fd"};
    switch (in_.ConsumeIntegralInRange<int>(0, 19)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return memory();
      case 4:
        return lingering();
      case 5:
        return unix_socket(SOCK_STREAM);
      case 6:
        return unix_socket(in_.ConsumeBool() ? SOCK_DGRAM : SOCK_SEQPACKET);
      case 7:
        return pipe_end();
      case 8:
        return os::Fd(::eventfd(in_.ConsumeIntegral<uint8_t>(), EFD_CLOEXEC));
      case 9:
        return os::Fd(::epoll_create1(EPOLL_CLOEXEC));
      case 10:
        return os::open_process(in_.ConsumeBool() ? ::getpid() : 1);
      case 11:
        return os::Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
      case 12:
        return os::Fd(::inotify_init1(IN_CLOEXEC));
      case 13: {
        sigset_t set;
        ::sigemptyset(&set);
        return os::Fd(::signalfd(-1, &set, SFD_CLOEXEC));
      }
      case 14:
        return os::Fd(::open(in_.PickValueInArray(paths), O_PATH | O_CLOEXEC));
      case 15:
        return os::Fd(::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
      case 16:
        return os::Fd(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
      case 17: {
        const char* file = std::getenv("WEFT_FUZZ_FUSE");
        return os::Fd(file != nullptr ? ::open(file, O_RDWR | O_CLOEXEC) : -1);
      }
      case 18:
        return os::Fd(::socket(in_.ConsumeBool() ? AF_INET : AF_NETLINK,
                               (in_.ConsumeBool() ? SOCK_DGRAM : SOCK_RAW) | SOCK_CLOEXEC, 0));
      default:
        return os::Fd(::open(in_.PickValueInArray(paths), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    }
  }

  void send_hello() {
    const uint8_t how = in_.ConsumeIntegral<uint8_t>();
    Note note{};
    note.magic = region_magic;
    note.token = token_of(text_of(victim_));
    note.version = layout_version;
    note.kind = NoteKind::Hello;
    note.nonce = nonce;
    note.channel_offset = header_bytes;
    note.wants_reply = how & 1;
    std::copy_n(name, sizeof(name), note.address.begin());
    size_t length = sizeof(note);
    if ((how & 2) != 0) note.kind = static_cast<NoteKind>(in_.ConsumeIntegralInRange<uint32_t>(0, 6));
    if ((how & 4) != 0) note.channel_offset = in_.ConsumeIntegral<uint64_t>();
    if ((how & 8) != 0) length = in_.ConsumeIntegralInRange<size_t>(0, sizeof(note));
    if ((how & 16) != 0) {
      const auto bytes = in_.ConsumeBytes<uint8_t>(32);
      const size_t at = in_.ConsumeIntegralInRange<size_t>(0, sizeof(note) - 32);
      if (!bytes.empty()) std::memcpy(reinterpret_cast<std::byte*>(&note) + at, bytes.data(), bytes.size());
    }
    std::array<os::Fd, 2> held;
    std::vector<int> fds;
    const size_t count = in_.ConsumeIntegralInRange<size_t>(0, held.size());
    if ((how & 128) != 0 && ::seteuid(other_user) != 0) return;  // whose files these are
    for (size_t i = 0; i < count; ++i) {
      held[i] = descriptor();
      if (held[i]) fds.push_back(held[i].get());
    }
    (void)::seteuid(0);
    if ((how & 32) != 0 && !fds.empty()) {  // to be opened by its number
      note.file = fds.front();
      fds.clear();
    }
    const bool as_other = (how & 64) != 0 && ::setreuid(other_user, 0) == 0;
    // A real user that is not the effective one: the credentials that go along are made by the kernel from the real one.
    (void)send(std::as_bytes(std::span(&note, 1)).first(length), fds);
    if (as_other && ::setreuid(0, 0) != 0) std::abort();
  }

  // os::send_datagram() would name the effective user.
  int send(std::span<const std::byte> message, std::span<const int> fds) {
    const SocketName place(text_of(victim_));
    const std::string_view text = place;
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::copy(text.begin(), text.end(), to.sun_path + 1);
    iovec part{const_cast<std::byte*>(message.data()), message.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(2 * sizeof(int))> control{};
    msghdr header{};
    header.msg_name = &to;
    header.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!fds.empty()) {
      header.msg_control = control.data();
      header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* entry = CMSG_FIRSTHDR(&header);
      entry->cmsg_level = SOL_SOCKET;
      entry->cmsg_type = SCM_RIGHTS;
      entry->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(entry), fds.data(), fds.size() * sizeof(int));
    }
    return ::sendmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ? 0 : -errno;
  }

  // An address that names a descriptor of this process.
  void meet() {
    const os::Fd fd = descriptor();
    std::array<char, address_bytes> address{};
    std::snprintf(address.data(), address.size(), "fi_shm://%d:%d:7", ::getpid(), fd.get());
    int error = 0;
    timed([&] {
      Peer* peer = owner_.link.connect(std::as_bytes(std::span(address)), error);
      if (peer == nullptr) return;
      owner_.link.forget(*peer);
      owner_.peer_lost(*peer, core::ProviderError::None);
    });
  }

  static constexpr uint64_t nonce = 7;
  static constexpr char name[] = "fi_ns://fuzz";

  FuzzedDataProvider in_;
  Owner owner_;
  std::array<char, address_bytes> victim_{};
  os::Fd socket_;
  std::vector<os::Fd> others_;  // keep what would otherwise be closed, or reset, by its other end
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  HostileHandshakes(data, size).run();
  return 0;
}
