// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Everything of the libfabric front end that reads text or structures of a program: addresses, provider lists, parameters, fi_tostr, hints.
#include <fuzzer/FuzzedDataProvider.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "api/libfabric/discovery/getinfo.hpp"
#include "api/libfabric/text/param.hpp"
#include "api/libfabric/text/provider_names.hpp"
#include "api/libfabric/text/strerror.hpp"
#include "api/libfabric/text/tostr.hpp"
#include "providers/local_address.hpp"

namespace {

using namespace weft;

void require(bool holds) {
  if (!holds) std::abort();
}

std::string text(FuzzedDataProvider& in) {
  static const char* const known[] = {
      "fi_shm://1:2:3",  "fi_ns://x", "shm", "^shm,loopback", "127.0.0.1", "4711", "1", "yes", "0x10", ";",
      "weft_shm;ofi_rxm"};
  if (in.ConsumeIntegralInRange<int>(0, 2) == 0) return in.PickValueInArray(known);
  std::string out = in.ConsumeRandomLengthString(80);
  out.resize(::strnlen(out.c_str(), out.size()));
  return out;
}

void addresses(FuzzedDataProvider& in) {
  const std::string node = text(in);
  const std::string service = text(in);
  for (const fi::Provider* provider : fi::providers()) {
    for (const fi_info* offer = provider->offers(*provider); offer != nullptr; offer = offer->next) {
      const uint32_t format = offer->addr_format;
      const size_t length = provider->addrlen(format);
      // Whatever a peer calls itself.
      auto random = in.ConsumeBytes<uint8_t>(length);
      random.resize(length);
      random.shrink_to_fit();
      (void)provider->to_string(format, random.data());
      if (node.find_first_not_of("0123456789.:abcdef[]/") != std::string::npos && format != FI_ADDR_STR)
        continue;  // a name would be asked for in the network
      auto bytes = provider->resolve(format, in.ConsumeBool() ? node.c_str() : nullptr,
                                     in.ConsumeBool() ? service.c_str() : nullptr, in.ConsumeBool());
      if (!bytes) {
        require(bytes.error().code > 0 && !bytes.error().why.empty());
        continue;
      }
      require(bytes->empty() || bytes->size() == length);
      if (!bytes->empty()) (void)provider->to_string(format, bytes->data());
    }
  }
  const std::string raw = in.ConsumeRandomLengthString(70);
  std::unique_ptr<char[]> exact(new char[raw.size()]);
  std::memcpy(exact.get(), raw.data(), raw.size());
  (void)fi::address_text(in.ConsumeIntegralInRange<uint32_t>(0, 20), exact.get(), raw.size());
}

void parameters(FuzzedDataProvider& in) {
  const std::string provider = text(in);
  const std::string name = text(in);
  const std::string value = text(in);
  ::setenv("FI_FUZZ_KNOWN", value.c_str(), 1);
  const auto type = static_cast<fi_param_type>(in.ConsumeIntegralInRange<int>(0, 3));
  static int kinds = (fi::param_define("fuzz", "known", FI_PARAM_INT, "an integer"), 0);
  (void)kinds;
  int number = 0;
  (void)fi::param_get("fuzz", "known", &number);
  union {
    char* string;
    int integer;
    size_t size;
  } out{};
  // A bounded number of names, for definitions stay.
  const std::string few = "name" + std::to_string(in.ConsumeIntegralInRange<int>(0, 30));
  (void)fi::param_define("fuzz", few.c_str(), type, "help");
  ::setenv(("FI_FUZZ_NAME" + few.substr(4)).c_str(), value.c_str(), 1);
  (void)fi::param_get("fuzz", few.c_str(), &out);
  (void)fi::param_get(provider.c_str(), name.c_str(), &out);
  (void)fi::name_passes(provider.c_str(), name.c_str());
}

// Hints with any number in any field.
fi::InfoPtr random_info(FuzzedDataProvider& in) {
  fi::InfoPtr info(fi::dup_info(nullptr));
  require(info != nullptr);
  const auto scramble = [&](void* at, size_t bytes) {
    if (!in.ConsumeBool()) return;
    const auto random = in.ConsumeBytes<uint8_t>(bytes);
    if (!random.empty()) std::memcpy(at, random.data(), random.size());
  };
  const auto word = [&](auto& field) {
    switch (in.ConsumeIntegralInRange<int>(0, 3)) {
      case 0:
        scramble(&field, sizeof(field));
        break;
      case 1: {
        const uint64_t small = in.ConsumeIntegralInRange<uint64_t>(0, 8);
        std::memcpy(&field, &small, sizeof(field) < 8 ? sizeof(field) : 8);
        break;
      }
      case 2: {
        const uint64_t bit = uint64_t{1} << in.ConsumeIntegralInRange<int>(0, 63);
        std::memcpy(&field, &bit, sizeof(field) < 8 ? sizeof(field) : 8);
        break;
      }
      default:
        break;
    }
  };
  word(info->caps), word(info->mode), word(info->addr_format);
  fi_ep_attr& ep = *info->ep_attr;
  word(ep.type), word(ep.protocol), word(ep.protocol_version), word(ep.max_msg_size),
      word(ep.msg_prefix_size), word(ep.max_order_raw_size);
  word(ep.mem_tag_format), word(ep.tx_ctx_cnt), word(ep.rx_ctx_cnt);
  fi_domain_attr& domain = *info->domain_attr;
  word(domain.threading), word(domain.control_progress), word(domain.data_progress),
      word(domain.resource_mgmt), word(domain.av_type);
  word(domain.mr_mode), word(domain.mr_key_size), word(domain.cq_data_size), word(domain.cq_cnt),
      word(domain.caps), word(domain.mode);
  word(domain.max_err_data), word(domain.mr_cnt), word(domain.tclass), word(domain.max_ep_tx_ctx),
      word(domain.mr_iov_limit);
  fi_tx_attr& tx = *info->tx_attr;
  word(tx.caps), word(tx.mode), word(tx.op_flags), word(tx.msg_order), word(tx.comp_order),
      word(tx.inject_size), word(tx.size), word(tx.iov_limit);
  word(tx.rma_iov_limit), word(tx.tclass);
  fi_rx_attr& rx = *info->rx_attr;
  word(rx.caps), word(rx.mode), word(rx.op_flags), word(rx.msg_order), word(rx.comp_order),
      word(rx.total_buffered_recv), word(rx.size), word(rx.iov_limit);
  const auto name = [&](char*& field) {
    if (in.ConsumeIntegralInRange<int>(0, 7) == 0) require(fi::assign_string(&field, text(in).c_str()));
  };
  name(info->fabric_attr->name), name(info->fabric_attr->prov_name), name(domain.name);
  if (in.ConsumeIntegralInRange<int>(0, 7) == 0) {
    const std::string bytes = in.ConsumeRandomLengthString(60);
    if (!bytes.empty())
      require(fi::assign_bytes(&info->dest_addr, &info->dest_addrlen, bytes.data(), bytes.size()));
  }
  if (in.ConsumeIntegralInRange<int>(0, 7) == 0) {
    const std::string bytes = in.ConsumeRandomLengthString(60);
    if (!bytes.empty())
      require(fi::assign_bytes(&info->src_addr, &info->src_addrlen, bytes.data(), bytes.size()));
  }
  return info;
}

void hints(FuzzedDataProvider& in) {
  const fi::InfoPtr info = random_info(in);
  char buffer[2000];
  const size_t length = in.ConsumeIntegralInRange<size_t>(0, sizeof(buffer));
  std::unique_ptr<char[]> exact(new char[length]);
  require(fi::to_text(exact.get(), length, info.get(), FI_TYPE_INFO) == exact.get());
  if (length > 0) require(::strnlen(exact.get(), length) < length);
  (void)fi::to_text(info.get(), FI_TYPE_INFO);

  const std::string node = text(in);
  const std::string service = text(in);
  const uint32_t version = in.ConsumeBool() ? FI_VERSION(1, in.ConsumeIntegralInRange<uint32_t>(0, 18))
                                            : in.ConsumeIntegral<uint32_t>();
  const fi::Catalogue catalogue{fi::providers(), in.ConsumeBool()};
  const uint64_t flags = in.ConsumeBool() ? FI_SOURCE : in.ConsumeBool() ? 0 : in.ConsumeIntegral<uint64_t>();
  fi_info* list = nullptr;
  const int status = fi::get_info(catalogue, version, in.ConsumeBool() ? node.c_str() : nullptr,
                                  in.ConsumeBool() ? service.c_str() : nullptr, flags,
                                  in.ConsumeIntegralInRange<int>(0, 7) == 0 ? nullptr : info.get(), &list);
  require(status <= 0 && (status == 0) == (list != nullptr));
  for (const fi_info* at = list; at != nullptr; at = at->next) (void)fi::to_text(at, FI_TYPE_INFO);
  fi::free_info(list);
}

void values(FuzzedDataProvider& in) {
  const uint64_t value =
      in.ConsumeBool() ? in.ConsumeIntegral<uint64_t>() : in.ConsumeIntegralInRange<uint64_t>(0, 64);
  const auto type = in.ConsumeIntegralInRange<uint32_t>(0, 31);  // what the enumeration can hold
  fi_type kind;
  std::memcpy(&kind, &type, sizeof(kind));
  // Types that are structures need a structure; the others are one number.
  switch (type) {
    case FI_TYPE_INFO:
    case FI_TYPE_TX_ATTR:
    case FI_TYPE_RX_ATTR:
    case FI_TYPE_EP_ATTR:
    case FI_TYPE_DOMAIN_ATTR:
    case FI_TYPE_FABRIC_ATTR:
    case FI_TYPE_VERSION:
    case FI_TYPE_FID:
      return;
    default:
      break;
  }
  char small[40];
  (void)fi::to_text(small, in.ConsumeIntegralInRange<size_t>(0, sizeof(small)), &value, kind);
  (void)fi::to_text(nullptr, kind);
  (void)fi::flags_text(value, kind);
  (void)fi::value_text(static_cast<uint32_t>(value), kind);
  (void)fi::version_text(static_cast<uint32_t>(value));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  switch (in.ConsumeIntegralInRange<int>(0, 5)) {
    case 0:
      addresses(in);
      break;
    case 1:
      parameters(in);
      break;
    case 2:
      values(in);
      break;
    default:
      hints(in);
  }
  return 0;
}
