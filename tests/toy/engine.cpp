// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An engine that knows nothing but messages over one connection, inside the process: what an API front end needs at least
// (src/proto/engine/endpoint_engine.hpp). Its provider `toy` stands alone in a library of its own, on which the conformance cases for connected
// messages run.
#include <array>

#include "api/libfabric/entry/provider_of.hpp"
#include "link/loopback/connection.hpp"
#include "proto/datagram/receiver.hpp"
#include "proto/engine/plain_engine.hpp"
#include "providers/local_address.hpp"

namespace weft::toy {

namespace loopback = link::loopback;
class Engine final : public proto::PlainEngine<proto::DatagramReceiver>, private loopback::ConnectionEvents {
 public:
  using Connection = loopback::Connection;
  static constexpr proto::EngineAbilities abilities{
      .transmit_caps = FI_MSG | FI_SEND,
      .receive_caps = FI_MSG | FI_RECV | FI_MULTI_RECV,
      .transmit_flags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE,
      .receive_flags = FI_COMPLETION | FI_MULTI_RECV,
      .order = FI_ORDER_SAS,
      .inject_bytes = 4096,
      .message_bytes_max = size_t{1} << 30,
      .type = FI_EP_MSG};
  using PlainEngine::PlainEngine;

  Result<void> open(std::string_view name, proto::ConnectionObserver& observer) {
    return connection_.open(name, *this, observer);
  }
  void close() noexcept { connection_.close(); }
  std::span<const std::byte> address() noexcept { return connection_.address(); }
  Connection& connection() noexcept { return connection_; }
  bool gone() const noexcept { return gone_; }
  void shut_down() noexcept {
    connection_.shut_down();
    peer_ = nullptr;
    receive_->end_posted(FI_ECANCELED, core::ProviderError::Cancelled);
  }

  ssize_t post(proto::TxContext& tx, const proto::Request& request) noexcept {
    if (peer_ == nullptr) return -FI_ENOTCONN;
    if ((request.flags & ~(abilities.transmit_flags | FI_MORE | FI_MSG | FI_SEND)) != 0)
      return -FI_EOPNOTSUPP;
    const size_t length = proto::total_bytes(request.iov, request.iov_count);
    if (length > ((request.flags & FI_INJECT) != 0 ? abilities.inject_bytes : limits_.message_bytes))
      return -FI_EMSGSIZE;
    const wire::FrameHead head{wire::FrameKind::Msg, 0, 0, uint32_t(length), 0, 0};
    if ((tx.cq != nullptr && tx.cq->full()) ||
        !connection_.send(*peer_, head, {}, request.iov, request.iov_count))
      return -FI_EAGAIN;
    complete_send(tx, request, length);
    return 0;
  }

  void progress() noexcept override {
    if (!has_full_queue()) (void)connection_.poll(*this);
  }
  int wait_fd() noexcept override { return connection_.wait_fd(); }
  bool arm() noexcept override { return connection_.arm(); }
  void disarm() noexcept override { connection_.disarm(); }
  // Called by the connection. A message that nobody waits for stays with it.
  bool on_frame(loopback::Other&, const wire::FrameHead& head, const std::byte* payload) noexcept {
    if (receive_->posted() == 0) return false;
    receive_->arrived({payload, head.length}, FI_ADDR_NOTAVAIL);
    return true;
  }

 private:
  loopback::Other* make_peer(std::span<const std::byte>) override { return peer_ = &other_; }
  void peer_lost(loopback::Other&, core::ProviderError why) noexcept override {
    peer_ = nullptr;
    gone_ = true;
    receive_->end_posted(FI_ECANCELED, why);
  }

  Connection connection_;
  loopback::Other other_;
  loopback::Other* peer_ = nullptr;
  bool gone_ = false;
};
static_assert(proto::ConnectedEngine<Engine>);

struct Toy : providers::LocalAddresses<loopback::Connection> {
  using Engine = toy::Engine;
  static constexpr const char* name = "toy";
  static constexpr uint32_t version = FI_VERSION(1, 0);
  static constexpr std::array<providers::EndpointKind, 1> kinds = {
      {{FI_EP_MSG, FI_PROTO_UNSPEC, 1, FI_LOCAL_COMM}}};
};

}  // namespace weft::toy

namespace weft::fi {
std::span<const Provider* const> providers() {
  static constexpr std::array<const Provider*, 1> all = {&provider_of<toy::Toy>};
  return all;
}
}  // namespace weft::fi
