// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The pieces of match.cpp, one for each structure inside an fi_info. Must not know where hints come from.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <string>

#include "api/libfabric/discovery/provider.hpp"
#include "base/result.hpp"

namespace weft::fi {

// One offer against one request. `answer` starts as a copy of the offer; each piece checks its hints and
// edits it. All parts of offer and answer are there; hints and its parts may be null, which asks for nothing.
struct Negotiation {
  const Provider& provider;
  const fi_info& offer;
  uint32_t version;
  const fi_info* hints;
  fi_info& answer;

  bool since(int major, int minor) const noexcept {
    return FI_VERSION_GE(version, static_cast<uint32_t>(FI_VERSION(major, minor)));
  }
};

Result<void> match_caps(Negotiation& talk);
Result<void> match_mode(Negotiation& talk);
Result<void> match_mr_mode(Negotiation& talk);  // after match_mode: it may add FI_LOCAL_MR
Result<void> match_domain(Negotiation& talk);   // after match_caps
Result<void> match_fabric(Negotiation& talk);
Result<void> match_endpoint(Negotiation& talk);
Result<void> match_transmit(Negotiation& talk);  // after match_caps
Result<void> match_receive(Negotiation& talk);

// The refusal of every piece: "attribute: ASKED was asked, NAME offers THERE".
Error refuse(const Negotiation& talk, const char* attribute, const std::string& asked,
             const std::string& there);

// Numbers where more is better: a hint above the offer is refused.
Result<void> at_most(const Negotiation& talk, const char* attribute, uint64_t asked, uint64_t there);
// Bits of which each must be offered.
Result<void> within(const Negotiation& talk, const char* attribute, uint64_t asked, uint64_t there,
                    fi_type type);
// fi_endpoint(3), "tclass": a class that exists is granted, for it is a request that a transport honours as well as it can.
Result<void> match_traffic_class(const Negotiation& talk, const char* attribute, uint32_t asked,
                                 uint32_t& answer);
// Values where 0 asks for nothing.
Result<void> same(const Negotiation& talk, const char* attribute, uint32_t asked, uint32_t there,
                  fi_type type);

}  // namespace weft::fi
