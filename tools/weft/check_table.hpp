// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What `weft check` judges by: capabilities with the cases that show them, and what each program above a provider needs of it. Data and
// its look-up; must not know how cases are run.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::tool::checking {

// What a provider says of one type of endpoint.
class Claims {
 public:
  using Edit = std::function<void(fi_info&)>;

  virtual ~Claims() = default;
  // What fi_getinfo(3) answers to the provider's name and this type alone; never empty.
  virtual std::span<const fi_info* const> infos() const = 0;
  // Whether fi_getinfo(3) offers this provider for hints that `edit` changed.
  virtual bool offered(const Edit& edit) const = 0;

  bool any(const std::function<bool(const fi_info&)>& is) const;
  bool has(uint64_t caps) const;  // one of the answers has them all
};

enum class Claimed {
  no,
  yes,      // fi_getinfo(3) says so
  always,   // the manual asks it of every provider
  by_call,  // no attribute tells; the call that opens it may refuse, and then nothing is claimed
};
std::string_view text_of(Claimed claimed);
Claimed claimed_of(std::string_view text);

// Where a capability or a need belongs. Values combine.
enum Types : unsigned { rdm = 1, msg = 2, dgram = 4, all_types = 7 };
unsigned bit_of(fi_ep_type type);
std::string_view name_of(fi_ep_type type);

struct Capability {
  std::string_view name;
  std::string_view manual;  // page and section
  std::string_view cases;   // patterns with '*', ':' between them
  unsigned types;
  Claimed (*claimed)(const Claims&);
};
std::span<const Capability> capabilities();
// The one that a case shows: of all patterns that match, the one with the most letters. Null: nobody has put the case into the table.
const Capability* capability_of(std::string_view case_name);
bool matches(std::string_view patterns, std::string_view case_name);
// Whether a case is run for this type of endpoint.
bool belongs_to(std::string_view case_name, fi_ep_type type);
// The capability bits that the table has no line for.
uint64_t untested_bits();

enum class Verdict { ompi_mtl, ompi_btl, mpich, rxm, rxd };
inline constexpr Verdict verdicts[] = {Verdict::ompi_mtl, Verdict::ompi_btl, Verdict::mpich, Verdict::rxm,
                                       Verdict::rxd};
std::string_view name_of(Verdict verdict);
// By the word that stands for it on the command line: ompi-mtl, ompi-btl, mpich, rxm, rxd.
std::optional<Verdict> verdict_of(std::string_view word);
fi_ep_type type_of(Verdict verdict);

struct Need {
  Verdict verdict;
  std::string_view what;
  std::string_view source;
  bool optional;           // without it the program runs, worse
  Claims::Edit ask;        // hints that must be honoured; null: nothing to ask
  std::string_view cases;  // that must not be broken; empty: none
};
std::span<const Need> needs();
// Whether the verdict looks at this case.
bool needs_case(Verdict verdict, std::string_view case_name);

enum class Outcome { passed, failed, skipped, crashed, hung };
std::string_view text_of(Outcome outcome);

// A reason that begins so is what the library wrote to its log in that case.
inline constexpr std::string_view said_meanwhile = "said meanwhile: ";

struct CaseResult {
  std::string name;
  Outcome outcome = Outcome::passed;
  std::vector<std::string> reasons;

  bool broken() const { return outcome != Outcome::passed && outcome != Outcome::skipped; }
};

// The claims of one type of endpoint as they cross from the process that asked: answers by the place in capabilities() and needs().
struct Answers {
  std::vector<Claimed> claimed;
  std::vector<bool> met;  // each need by itself
  bool together[5] = {};  // by verdict: all that is not optional at once
  std::vector<std::string> untested;
};
Answers answers_of(const Claims& claims, fi_ep_type type);

struct Judgement {
  Verdict verdict;
  bool yes = false;
  std::vector<std::string> reasons;  // why not
  std::vector<std::string> without;  // what it does without
};
// `answers` is null when this type of endpoint is not offered.
Judgement judge(Verdict verdict, std::string_view provider, const Answers* answers,
                std::span<const CaseResult> results);

}  // namespace weft::tool::checking
