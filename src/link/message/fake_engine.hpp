// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An engine over MessageLink, with what an endpoint has; over connections in memory, or others. Must not be used
// outside tests.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>

#include "link/message/fake_endpoints.hpp"
#include "proto/engine/engine.hpp"

namespace weft::link::message {

template <class L>
struct FakeEnd {
  FakeEnd(FakeNet& net, const std::string& name) : engine(proto::EngineLimits{}) {
    engine.link().set_context(&net);
    open(name);
  }
  // Of endpoints of the network.
  FakeEnd(uint32_t address_format, std::span<const std::byte> address) : engine(proto::EngineLimits{}) {
    engine.link().set_address_format(address_format);
    open({reinterpret_cast<const char*>(address.data()), address.size()});
  }
  template <class Other>
  fi_addr_t meet(FakeEnd<Other>& other) {
    const auto address = other.engine.link().address();
    return av.insert(core::Address(address.data(), address.size()));
  }
  // What the queue has: completions, and errors in `failed`.
  size_t completed() {
    size_t count = 0;
    fi_cq_tagged_entry entry;
    core::CompletionError error;
    while (true) {
      const ssize_t got = cq.read<fi_cq_tagged_entry, false>(&entry, 1, nullptr);
      if (got == 1) ++count;
      else if (got == -FI_EAVAIL && cq.read_error(error) == 0) ++failed;
      else return count;
    }
  }

  core::AddressVector av{0};
  core::MemoryRegionTable regions{{false, false, false}, nullptr};
  core::CompletionQueue cq{256};
  proto::TxContext tx;
  proto::RxContext rx{0, 128, 1};
  proto::Engine<L> engine;
  size_t failed = 0;

 private:
  void open(std::string_view source) {
    EXPECT_TRUE(engine.link().open(source, engine));
    engine.set_address_vector(&av);
    engine.set_regions(&regions);
    engine.set_receive_context(0, &rx);
    engine.add_queue(&cq);
    rx.cq = tx.cq = &cq;
    rx.apply_bindings();
    tx.apply_bindings();
  }
};

}  // namespace weft::link::message
