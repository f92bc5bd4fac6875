// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "wire/cm.hpp"

#include <algorithm>
#include <cstring>

namespace weft::wire::cm {
namespace {

constexpr size_t fields = mad_header_bytes;
constexpr uint8_t guid_bytes = 8;

constexpr size_t data_at(Kind kind) noexcept {
  switch (kind) {
    case Kind::Request:
      return fields + 140;
    case Kind::MessageReceiptAcknowledgement:
      return fields + 10;
    case Kind::Reject:
      return fields + 84;
    case Kind::Reply:
      return fields + 36;
    case Kind::ReadyToUse:
      return fields + 8;
    case Kind::DisconnectRequest:
      return fields + 12;
    case Kind::DisconnectReply:
      return fields + 8;
    case Kind::ServiceRequest:
      return fields + 16;
    case Kind::ServiceReply:
      return fields + 96;
    case Kind::LoadAlternatePath:
      return fields + 64;
    case Kind::AlternatePathResponse:
      return fields + 84;
  }
  return mad_bytes;
}
static_assert(mad_bytes - data_at(Kind::Request) == request_data_bytes);
static_assert(mad_bytes - data_at(Kind::Reject) == reject_data_bytes);
static_assert(mad_bytes - data_at(Kind::Reply) == reply_data_bytes);
static_assert(mad_bytes - data_at(Kind::ReadyToUse) == ready_data_bytes);
static_assert(mad_bytes - data_at(Kind::DisconnectRequest) == disconnect_data_bytes);
static_assert(mad_bytes - data_at(Kind::DisconnectReply) == disconnected_data_bytes);
static_assert(mad_bytes - data_at(Kind::ServiceRequest) == service_request_data_bytes);
static_assert(mad_bytes - data_at(Kind::ServiceReply) == service_reply_data_bytes);

uint32_t load24(const std::byte* at) noexcept { return load_big<uint32_t>(at) >> 8; }
// The byte behind it is the caller's.
void store24(std::byte* at, uint32_t value) noexcept {
  at[0] = static_cast<std::byte>(value >> 16);
  at[1] = static_cast<std::byte>(value >> 8);
  at[2] = static_cast<std::byte>(value);
}

Mad begin(uint64_t transaction, Kind kind, Bytes data) noexcept {
  Mad mad{};
  mad[0] = std::byte{1};
  mad[1] = std::byte{7};
  mad[2] = std::byte{2};
  mad[3] = std::byte{3};
  store_big(&mad[8], transaction);
  store_big(&mad[16], static_cast<uint16_t>(kind));
  const size_t at = data_at(kind);
  if (!data.empty()) std::memcpy(&mad[at], data.data(), std::min(data.size(), mad_bytes - at));
  return mad;
}

Mad write_pair(uint64_t transaction, Kind kind, const Pair& m, Bytes data) noexcept {
  Mad mad = begin(transaction, kind, data);
  store_big(&mad[fields], m.local_id);
  store_big(&mad[fields + 4], m.remote_id);
  return mad;
}

}  // namespace

std::optional<Header> read_header(Bytes mad) noexcept {
  if (mad.size() != mad_bytes) return {};
  Header h;
  h.base_version = load_byte(&mad[0]);
  h.management_class = load_byte(&mad[1]);
  h.class_version = load_byte(&mad[2]);
  h.method = load_byte(&mad[3]);
  h.status = load_big<uint16_t>(&mad[4]);
  h.transaction = load_big<uint64_t>(&mad[8]);
  const auto attribute = load_big<uint16_t>(&mad[16]);
  if (h.base_version != 1 || h.management_class != 7 || h.class_version != 2 || h.method != 3) return {};
  if (attribute < static_cast<uint16_t>(Kind::Request) ||
      attribute > static_cast<uint16_t>(Kind::AlternatePathResponse))
    return {};
  h.kind = static_cast<Kind>(attribute);
  return h;
}

std::span<const std::byte> private_data(const Mad& mad, Kind kind) noexcept {
  return std::span<const std::byte>(mad).subspan(data_at(kind));
}

Request read_request(const Mad& mad) noexcept {
  const std::byte* at = &mad[fields];
  Request m;
  m.local_id = load_big<uint32_t>(at);
  m.service = load_big<uint64_t>(at + 8);
  m.guid = load_big<uint64_t>(at + 16);
  m.qkey = load_big<uint32_t>(at + 28);
  m.qpn = load24(at + 32);
  m.responder_resources = load_byte(at + 35);
  m.initiator_depth = load_byte(at + 39);
  const uint8_t how = load_byte(at + 43);
  m.remote_response_timeout = how >> 3;
  m.transport = static_cast<Transport>(how >> 1 & 3);
  m.flow_control = (how & 1) != 0;
  m.psn = load24(at + 44);
  m.local_response_timeout = load_byte(at + 47) >> 3;
  m.retry_count = load_byte(at + 47) & 7;
  m.pkey = load_big<uint16_t>(at + 48);
  m.mtu = load_byte(at + 50) >> 4;
  m.rnr_retry_count = load_byte(at + 50) & 7;
  m.max_retries = load_byte(at + 51) >> 4;
  m.shared_receive_queue = (load_byte(at + 51) & 8) != 0;
  std::memcpy(m.local_gid.data(), at + 56, m.local_gid.size());
  std::memcpy(m.remote_gid.data(), at + 72, m.remote_gid.size());
  m.flow_label = load_big<uint32_t>(at + 88) >> 12;
  m.traffic_class = load_byte(at + 92);
  m.hop_limit = load_byte(at + 93);
  m.service_level = load_byte(at + 94) >> 4;
  m.ack_timeout = load_byte(at + 95) >> 3;
  return m;
}

Mad write(uint64_t transaction, const Request& m, Bytes data) noexcept {
  Mad mad = begin(transaction, Kind::Request, data);
  std::byte* at = &mad[fields];
  store_big(at, m.local_id);
  store_big(at + 8, m.service);
  store_big(at + 16, m.guid);
  store_big(at + 28, m.qkey);
  store24(at + 32, m.qpn);
  at[35] = std::byte{m.responder_resources};
  at[39] = std::byte{m.initiator_depth};
  at[43] = static_cast<std::byte>(m.remote_response_timeout << 3 | static_cast<unsigned>(m.transport) << 1 |
                                  (m.flow_control ? 1u : 0u));
  store24(at + 44, m.psn);
  at[47] = static_cast<std::byte>(m.local_response_timeout << 3 | (m.retry_count & 7));
  store_big(at + 48, m.pkey);
  at[50] = static_cast<std::byte>(m.mtu << 4 | (m.rnr_retry_count & 7));
  at[51] = static_cast<std::byte>(m.max_retries << 4 | (m.shared_receive_queue ? 8 : 0));
  // LIDs that are not there are the permissive one (RoCE has none).
  store_big(at + 52, uint16_t{0xffff});
  store_big(at + 54, uint16_t{0xffff});
  std::memcpy(at + 56, m.local_gid.data(), m.local_gid.size());
  std::memcpy(at + 72, m.remote_gid.data(), m.remote_gid.size());
  store_big(at + 88, m.flow_label << 12);
  at[92] = std::byte{m.traffic_class};
  at[93] = std::byte{m.hop_limit};
  at[94] = static_cast<std::byte>(m.service_level << 4);
  at[95] = static_cast<std::byte>(m.ack_timeout << 3);
  return mad;
}

Acknowledgement read_acknowledgement(const Mad& mad) noexcept {
  const std::byte* at = &mad[fields];
  return {load_big<uint32_t>(at), load_big<uint32_t>(at + 4), static_cast<About>(load_byte(at + 8) >> 6),
          static_cast<uint8_t>(load_byte(at + 9) >> 3)};
}
Mad write(uint64_t transaction, const Acknowledgement& m) noexcept {
  Mad mad = write_pair(transaction, Kind::MessageReceiptAcknowledgement, {m.local_id, m.remote_id}, {});
  mad[fields + 8] = static_cast<std::byte>(static_cast<unsigned>(m.about) << 6);
  mad[fields + 9] = static_cast<std::byte>(m.service_timeout << 3);
  return mad;
}

Reject read_reject(const Mad& mad) noexcept {
  const std::byte* at = &mad[fields];
  return {load_big<uint32_t>(at), load_big<uint32_t>(at + 4), static_cast<About>(load_byte(at + 8) >> 6),
          static_cast<Reason>(load_big<uint16_t>(at + 10))};
}
Mad write(uint64_t transaction, const Reject& m, Bytes data) noexcept {
  Mad mad = write_pair(transaction, Kind::Reject, {m.local_id, m.remote_id}, data);
  mad[fields + 8] = static_cast<std::byte>(static_cast<unsigned>(m.about) << 6);
  store_big(&mad[fields + 10], static_cast<uint16_t>(m.reason));
  return mad;
}

Reply read_reply(const Mad& mad) noexcept {
  const std::byte* at = &mad[fields];
  Reply m;
  m.local_id = load_big<uint32_t>(at);
  m.remote_id = load_big<uint32_t>(at + 4);
  m.qkey = load_big<uint32_t>(at + 8);
  m.qpn = load24(at + 12);
  m.psn = load24(at + 20);
  m.responder_resources = load_byte(at + 24);
  m.initiator_depth = load_byte(at + 25);
  m.target_ack_delay = load_byte(at + 26) >> 3;
  m.flow_control = (load_byte(at + 26) & 1) != 0;
  m.rnr_retry_count = load_byte(at + 27) >> 5;
  m.shared_receive_queue = (load_byte(at + 27) & 16) != 0;
  m.guid = load_big<uint64_t>(at + 28);
  return m;
}
Mad write(uint64_t transaction, const Reply& m, Bytes data) noexcept {
  Mad mad = begin(transaction, Kind::Reply, data);
  std::byte* at = &mad[fields];
  store_big(at, m.local_id);
  store_big(at + 4, m.remote_id);
  store_big(at + 8, m.qkey);
  store24(at + 12, m.qpn);
  store24(at + 20, m.psn);
  at[24] = std::byte{m.responder_resources};
  at[25] = std::byte{m.initiator_depth};
  at[26] = static_cast<std::byte>(m.target_ack_delay << 3 | (m.flow_control ? 1 : 0));
  at[27] = static_cast<std::byte>((m.rnr_retry_count & 7) << 5 | (m.shared_receive_queue ? 16 : 0));
  store_big(at + 28, m.guid);
  return mad;
}

Pair read_pair(const Mad& mad) noexcept {
  return {load_big<uint32_t>(&mad[fields]), load_big<uint32_t>(&mad[fields + 4])};
}
Mad write_ready_to_use(uint64_t transaction, const Pair& m, Bytes data) noexcept {
  return write_pair(transaction, Kind::ReadyToUse, m, data);
}
Mad write_disconnect_reply(uint64_t transaction, const Pair& m, Bytes data) noexcept {
  return write_pair(transaction, Kind::DisconnectReply, m, data);
}
Mad write_alternate_path_refusal(uint64_t transaction, const Pair& m) noexcept {
  Mad mad = write_pair(transaction, Kind::AlternatePathResponse, m, {});
  mad[fields + 9] = std::byte{2};
  return mad;
}

DisconnectRequest read_disconnect_request(const Mad& mad) noexcept {
  const std::byte* at = &mad[fields];
  return {load_big<uint32_t>(at), load_big<uint32_t>(at + 4), load24(at + 8)};
}
Mad write(uint64_t transaction, const DisconnectRequest& m, Bytes data) noexcept {
  Mad mad = write_pair(transaction, Kind::DisconnectRequest, {m.local_id, m.remote_id}, data);
  store24(&mad[fields + 8], m.remote_qpn);
  return mad;
}

ServiceRequest read_service_request(const Mad& mad) noexcept {
  const std::byte* at = &mad[fields];
  return {load_big<uint32_t>(at), load_big<uint16_t>(at + 4), load_big<uint64_t>(at + 8)};
}
Mad write(uint64_t transaction, const ServiceRequest& m, Bytes data) noexcept {
  Mad mad = begin(transaction, Kind::ServiceRequest, data);
  store_big(&mad[fields], m.request_id);
  store_big(&mad[fields + 4], m.pkey);
  store_big(&mad[fields + 8], m.service);
  return mad;
}

ServiceReply read_service_reply(const Mad& mad) noexcept {
  const std::byte* at = &mad[fields];
  const bool has_guid = load_byte(at + 5) == guid_bytes;
  return {load_big<uint32_t>(at),
          static_cast<ServiceStatus>(load_byte(at + 4)),
          load24(at + 8),
          load_big<uint64_t>(at + 12),
          load_big<uint32_t>(at + 20),
          has_guid ? load_big<uint64_t>(at + 24) : 0};
}
Mad write(uint64_t transaction, const ServiceReply& m, Bytes data) noexcept {
  Mad mad = begin(transaction, Kind::ServiceReply, data);
  std::byte* at = &mad[fields];
  store_big(at, m.request_id);
  at[4] = static_cast<std::byte>(m.status);
  store24(at + 8, m.qpn);
  store_big(at + 12, m.service);
  store_big(at + 20, m.qkey);
  if (m.guid != 0) {
    at[5] = std::byte{guid_bytes};
    store_big(at + 24, m.guid);
  }
  return mad;
}

std::optional<IpHeader> read_ip_header(Bytes data) noexcept {
  if (data.size() < IpHeader::bytes || load_byte(&data[0]) != 0) return {};
  IpHeader h;
  h.version = load_byte(&data[1]) >> 4;
  if (h.version != 4 && h.version != 6) return {};
  h.source_port = load_big<uint16_t>(&data[2]);
  std::memcpy(h.source.data(), &data[4], h.source.size());
  std::memcpy(h.destination.data(), &data[20], h.destination.size());
  return h;
}
void write_ip_header(const IpHeader& h, std::byte* out) noexcept {
  out[0] = std::byte{0};
  out[1] = static_cast<std::byte>(h.version << 4);
  store_big(out + 2, h.source_port);
  std::memcpy(out + 4, h.source.data(), h.source.size());
  std::memcpy(out + 20, h.destination.data(), h.destination.size());
}

}  // namespace weft::wire::cm
