// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How the answer of `weft check` is shown. Must not know where it comes from.
#pragma once

#include <string>
#include <vector>

#include "check_claims.hpp"
#include "check_table.hpp"

namespace weft::tool::checking {

struct TypeReport {
  fi_ep_type type;
  Answers answers;
  std::vector<CaseResult> results;
};

struct Report {
  std::string provider;
  std::string plugin;  // empty: one of the library's own
  Offer offer;
  std::vector<TypeReport> types;
  std::vector<Judgement> judgements;  // empty when only a part was run
  bool interrupted = false;           // cases are missing
};

// A line of the table.
struct Line {
  const Capability* capability;
  Claimed claimed;
  size_t shown = 0, skipped = 0;
  std::vector<const CaseResult*> broken;

  // Counts against the provider: it claims that, or must have it.
  bool is_broken() const { return !broken.empty() && claimed != Claimed::no; }
};
std::vector<Line> lines_of(const TypeReport& type);
bool all_claims_shown(const Report& report);

std::string as_text(const Report& report, bool verbose);
std::string as_json(const Report& report);

}  // namespace weft::tool::checking
