// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What both sides agree on, and the side over libfabric. Knows neither processes nor reports.
#include "side.hpp"

#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "failure.hpp"
#include "verbs_side.hpp"

namespace weft::tool {

namespace {

using nlohmann::json;

constexpr unsigned window_most = 1 << 14;
constexpr size_t size_most = size_t{1} << 32;

std::string to_hex(const std::vector<uint8_t>& bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::vector<uint8_t> from_hex(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 2 <= text.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::strtoul(text.substr(i, 2).c_str(), nullptr, 16)));
  }
  return bytes;
}

std::string text(const char* value) { return value ? value : ""; }

class FabricSide final : public Side {
 public:
  FabricSide(const Agreement& agreement, const std::string& node, Channel& channel)
      : shape_(agreement.shape), channel_(channel), session_(agreement.request(node)) {}

  Identity identity() const override {
    const fi_info& info = session_.info();
    return {text(info.fabric_attr->prov_name), text(info.fabric_attr->name), text(info.domain_attr->name)};
  }
  json introduction() const override { return introduction_of(session_); }
  void connect(const json& peer) override {
    connect_session(session_, peer);
    runner_.emplace(session_, channel_, shape_);
    runner_->prepare();
  }
  double run(uint64_t warmup, uint64_t iters) override { return runner_->run(warmup, iters); }
  void poll() override {
    if (runner_) runner_->poll();
  }
  std::string operation() const override { return runner_->operation(); }
  const Histogram& times() const override { return runner_->times(); }
  std::optional<Packets> packets() const override { return session_.packets(); }
  std::optional<CopyPathCounts> copies() const override { return session_.copies(shape_.size); }

 private:
  const Shape shape_;
  Channel& channel_;
  Session session_;
  std::optional<Runner> runner_;
};

}  // namespace

json Agreement::message() const {
  return {{"command", "open"},        {"provider", provider},   {"threading", threading},
          {"test", shape.test->name}, {"size", shape.size},     {"window", shape.window},
          {"buffers", shape.buffers}, {"verify", shape.verify}, {"lane", shape.lane}};
}

Agreement Agreement::from(const json& message) {
  Agreement a;
  message.at("provider").get_to(a.provider);
  message.at("threading").get_to(a.threading);
  a.shape.test = &test_named(message.at("test").get<std::string>());
  message.at("size").get_to(a.shape.size);
  message.at("window").get_to(a.shape.window);
  message.at("buffers").get_to(a.shape.buffers);
  message.at("verify").get_to(a.shape.verify);
  message.at("lane").get_to(a.shape.lane);
  if (a.shape.size == 0 || a.shape.size > size_most || a.shape.window == 0 || a.shape.window > window_most ||
      a.shape.buffers == 0 || a.shape.buffers > 2 * window_most || a.shape.lane >= lanes_most) {
    fail("the other side asks for more than is sensible");
  }
  return a;
}

SessionRequest Agreement::request(const std::string& node) const {
  SessionRequest r;
  r.provider = provider;
  r.api = shape.test->api;
  r.size = shape.size;
  r.tx_slots = shape.tx_slots();
  r.rx_slots = shape.rx_slots() + shape.notice_slots();
  r.buffers = shape.buffers;
  r.cq_data = shape.test->api == Api::rma && shape.test->unit == Unit::latency && !shape.test->read;
  r.threading = threading;
  r.node = node;
  return r;
}

json introduction_of(const Session& session) {
  const RemoteMemory memory = session.memory();
  return {{"name", to_hex(session.name())}, {"address", memory.address}, {"key", memory.key}};
}

void connect_session(Session& session, const json& peer) {
  session.connect(from_hex(peer.at("name").get<std::string>()),
                  {peer.at("address").get<uint64_t>(), peer.at("key").get<uint64_t>()});
}

std::unique_ptr<Side> open_side(const Agreement& agreement, const Local& local, Channel& channel) {
  if (agreement.shape.test->is_verbs()) return open_verbs_side(agreement, local, channel);
  return std::make_unique<FabricSide>(agreement, local.node, channel);
}

}  // namespace weft::tool
