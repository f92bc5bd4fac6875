// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One side of one step, whatever carries its data, and what both sides agree on. Knows neither processes nor reports.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "channel.hpp"
#include "perf_plan.hpp"
#include "runner.hpp"
#include "session.hpp"

namespace weft::tool {

// What both sides must agree on for one step.
struct Agreement {
  std::string provider, threading;
  Shape shape;

  nlohmann::json message() const;
  // Checked: it may come over a network. Throws Failure.
  static Agreement from(const nlohmann::json& message);
  SessionRequest request(const std::string& node) const;
};

// What a result says of the endpoint.
struct Identity {
  std::string provider, fabric, domain;
};

class Side {
 public:
  virtual ~Side() = default;
  virtual Identity identity() const = 0;
  // What the other side must know to reach this one, and what it makes of ours. connect() also posts the receives.
  virtual nlohmann::json introduction() const = 0;
  virtual void connect(const nlohmann::json& peer) = 0;
  // As Runner::run(). After connect().
  virtual double run(uint64_t warmup, uint64_t iters) = 0;
  virtual void poll() = 0;  // nothing before connect()
  virtual std::string operation() const = 0;
  virtual const Histogram& times() const = 0;
  virtual std::optional<Packets> packets() const { return {}; }
  virtual std::optional<CopyPathCounts> copies() const { return {}; }
};

// `channel` is the one to the other side. Throws Refused or Failure.
std::unique_ptr<Side> open_side(const Agreement& agreement, const Local& local, Channel& channel);

nlohmann::json introduction_of(const Session& session);
void connect_session(Session& session, const nlohmann::json& peer);

}  // namespace weft::tool
