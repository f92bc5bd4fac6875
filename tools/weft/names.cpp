// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tables of the API's constants and their reader. Must not know what they are used for.
#include "names.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/libfabric_retired.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "failure.hpp"

namespace weft::tool {

namespace {

// The word of the source is the word of the command line, so the two cannot drift apart.
#define WEFT_NAME(constant) \
  Name { #constant, static_cast < uint64_t>(constant) }

#define WEFT_RETIRED(constant, word) \
  Name { #word, static_cast < uint64_t>(retired::constant) }

constexpr std::array capabilities{
    WEFT_NAME(FI_MSG),           WEFT_NAME(FI_RMA),
    WEFT_NAME(FI_TAGGED),        WEFT_NAME(FI_ATOMIC),
    WEFT_NAME(FI_MULTICAST),     WEFT_NAME(FI_COLLECTIVE),
    WEFT_NAME(FI_READ),          WEFT_NAME(FI_WRITE),
    WEFT_NAME(FI_RECV),          WEFT_NAME(FI_SEND),
    WEFT_NAME(FI_REMOTE_READ),   WEFT_NAME(FI_REMOTE_WRITE),
    WEFT_NAME(FI_MULTI_RECV),    WEFT_NAME(FI_TRIGGER),
    WEFT_NAME(FI_FENCE),         WEFT_RETIRED(xpu_trigger, FI_XPU_TRIGGER),
    WEFT_NAME(FI_HMEM),          WEFT_RETIRED(variable_msg, FI_VARIABLE_MSG),
    WEFT_NAME(FI_RMA_PMEM),      WEFT_NAME(FI_SOURCE_ERR),
    WEFT_NAME(FI_LOCAL_COMM),    WEFT_NAME(FI_REMOTE_COMM),
    WEFT_NAME(FI_SHARED_AV),     WEFT_NAME(FI_RMA_EVENT),
    WEFT_NAME(FI_SOURCE),        WEFT_NAME(FI_NAMED_RX_CTX),
    WEFT_NAME(FI_DIRECTED_RECV),
};
constexpr std::array modes{
    WEFT_NAME(FI_CONTEXT),
    WEFT_NAME(FI_CONTEXT2),
    WEFT_NAME(FI_MSG_PREFIX),
    WEFT_NAME(FI_ASYNC_IOV),
    WEFT_NAME(FI_RX_CQ_DATA),
    WEFT_RETIRED(local_mr, FI_LOCAL_MR),
    WEFT_RETIRED(notify_flags_only, FI_NOTIFY_FLAGS_ONLY),
    WEFT_RETIRED(restricted_comp, FI_RESTRICTED_COMP),
    WEFT_RETIRED(buffered_recv, FI_BUFFERED_RECV),
};
constexpr std::array mr_modes{
    WEFT_RETIRED(mr_basic, FI_MR_BASIC),
    WEFT_RETIRED(mr_scalable, FI_MR_SCALABLE),
    WEFT_NAME(FI_MR_LOCAL),
    WEFT_NAME(FI_MR_RAW),
    WEFT_NAME(FI_MR_VIRT_ADDR),
    WEFT_NAME(FI_MR_ALLOCATED),
    WEFT_NAME(FI_MR_PROV_KEY),
    WEFT_NAME(FI_MR_MMU_NOTIFY),
    WEFT_NAME(FI_MR_RMA_EVENT),
    WEFT_NAME(FI_MR_ENDPOINT),
    WEFT_NAME(FI_MR_HMEM),
    WEFT_NAME(FI_MR_COLLECTIVE),
};
constexpr std::array orders{
    WEFT_NAME(FI_ORDER_RAR),
    WEFT_NAME(FI_ORDER_RAW),
    WEFT_NAME(FI_ORDER_RAS),
    WEFT_NAME(FI_ORDER_WAR),
    WEFT_NAME(FI_ORDER_WAW),
    WEFT_NAME(FI_ORDER_WAS),
    WEFT_NAME(FI_ORDER_SAR),
    WEFT_NAME(FI_ORDER_SAW),
    WEFT_NAME(FI_ORDER_SAS),
    WEFT_RETIRED(order_strict, FI_ORDER_STRICT),
    WEFT_RETIRED(order_data, FI_ORDER_DATA),
    WEFT_NAME(FI_ORDER_RMA_RAR),
    WEFT_NAME(FI_ORDER_RMA_RAW),
    WEFT_NAME(FI_ORDER_RMA_WAR),
    WEFT_NAME(FI_ORDER_RMA_WAW),
    WEFT_NAME(FI_ORDER_ATOMIC_RAR),
    WEFT_NAME(FI_ORDER_ATOMIC_RAW),
    WEFT_NAME(FI_ORDER_ATOMIC_WAR),
    WEFT_NAME(FI_ORDER_ATOMIC_WAW),
};
constexpr std::array op_flags{
    WEFT_NAME(FI_COMPLETION),        WEFT_NAME(FI_INJECT),
    WEFT_NAME(FI_INJECT_COMPLETE),   WEFT_NAME(FI_TRANSMIT_COMPLETE),
    WEFT_NAME(FI_DELIVERY_COMPLETE), WEFT_NAME(FI_MATCH_COMPLETE),
    WEFT_NAME(FI_COMMIT_COMPLETE),   WEFT_NAME(FI_MULTI_RECV),
    WEFT_NAME(FI_REMOTE_CQ_DATA),
};
constexpr std::array ep_types{
    WEFT_NAME(FI_EP_UNSPEC),
    WEFT_NAME(FI_EP_MSG),
    WEFT_NAME(FI_EP_DGRAM),
    WEFT_NAME(FI_EP_RDM),
    WEFT_RETIRED(ep_sock_stream, FI_EP_SOCK_STREAM),
    WEFT_RETIRED(ep_sock_dgram, FI_EP_SOCK_DGRAM),
};
constexpr std::array addr_formats{
    WEFT_NAME(FI_FORMAT_UNSPEC), WEFT_NAME(FI_SOCKADDR),    WEFT_NAME(FI_SOCKADDR_IN),
    WEFT_NAME(FI_SOCKADDR_IN6),  WEFT_NAME(FI_SOCKADDR_IB), WEFT_NAME(FI_ADDR_PSMX),
    WEFT_NAME(FI_ADDR_GNI),      WEFT_NAME(FI_ADDR_BGQ),    WEFT_NAME(FI_ADDR_MLX),
    WEFT_NAME(FI_ADDR_STR),      WEFT_NAME(FI_ADDR_PSMX2),  WEFT_NAME(FI_ADDR_IB_UD),
    WEFT_NAME(FI_ADDR_EFA),      WEFT_NAME(FI_ADDR_PSMX3),
};
constexpr std::array threadings{
    WEFT_NAME(FI_THREAD_UNSPEC), WEFT_NAME(FI_THREAD_SAFE),       WEFT_NAME(FI_THREAD_FID),
    WEFT_NAME(FI_THREAD_DOMAIN), WEFT_NAME(FI_THREAD_COMPLETION), WEFT_NAME(FI_THREAD_ENDPOINT),
};
constexpr std::array progresses{
    WEFT_NAME(FI_PROGRESS_UNSPEC),
    WEFT_NAME(FI_PROGRESS_AUTO),
    WEFT_NAME(FI_PROGRESS_MANUAL),
};
constexpr std::array av_types{WEFT_NAME(FI_AV_UNSPEC), WEFT_NAME(FI_AV_MAP), WEFT_NAME(FI_AV_TABLE)};

#undef WEFT_NAME
#undef WEFT_RETIRED

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return result;
}

// The longest beginning, up to an underscore, that all names of a table share: what a lazy user may leave
// out.
std::string_view common_prefix(std::span<const Name> names) {
  std::string_view prefix = names.front().text;
  for (const Name& name : names) {
    size_t n = 0;
    while (n < prefix.size() && n < name.text.size() && prefix[n] == name.text[n]) ++n;
    prefix = prefix.substr(0, n);
  }
  return prefix.substr(0, prefix.rfind('_') + 1);
}

uint64_t parse_word(std::string_view word, std::span<const Name> names, std::string_view what) {
  const std::string wanted = upper(word);
  const std::string with_short = "FI_" + wanted;
  const std::string with_long = std::string(common_prefix(names)) + wanted;
  for (const Name& name : names) {
    if (name.text == wanted || name.text == with_short || name.text == with_long) return name.value;
  }
  uint64_t number = 0;
  const bool hex = wanted.starts_with("0X");
  const char* begin = word.data() + (hex ? 2 : 0);
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(begin, end, number, hex ? 16 : 10);
  if (error == std::errc{} && stop == end && begin != end) return number;
  std::string valid;
  for (const Name& name : names) {
    valid += valid.empty() ? "" : " ";
    valid += name.text;
  }
  fail_usage("{} is not {}; there are: {}", word, what, valid);
}

}  // namespace

std::span<const Name> capability_names() { return capabilities; }
std::span<const Name> mode_names() { return modes; }
std::span<const Name> mr_mode_names() { return mr_modes; }
std::span<const Name> order_names() { return orders; }
std::span<const Name> op_flag_names() { return op_flags; }
std::span<const Name> ep_type_names() { return ep_types; }
std::span<const Name> addr_format_names() { return addr_formats; }
std::span<const Name> threading_names() { return threadings; }
std::span<const Name> progress_names() { return progresses; }
std::span<const Name> av_type_names() { return av_types; }

uint64_t parse_flags(std::string_view text, std::span<const Name> names, std::string_view what) {
  uint64_t result = 0;
  while (!text.empty()) {
    const size_t end = text.find_first_of(",| ");
    const std::string_view word = text.substr(0, end);
    if (!word.empty()) result |= parse_word(word, names, what);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return result;
}

uint64_t parse_one(std::string_view text, std::span<const Name> names, std::string_view what) {
  return parse_word(text, names, what);
}

}  // namespace weft::tool
