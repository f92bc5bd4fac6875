// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages of the InfiniBand communication manager (IBTA volume 1, 12.6 and 12.11) and the IP header in front of a program's data (annex
// A11) as plain structs. A message is one MAD of 256 bytes (13.4.2): 24 bytes of header, 232 of fields. Reserved bits are written as zero and ignored
// when read. Numbers are in the machine's byte order here, big-endian on the wire. Stateless.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/bytes.hpp"
#include "wire/ip.hpp"

namespace weft::wire::cm {

inline constexpr size_t mad_bytes = 256;
inline constexpr size_t mad_header_bytes = 24;
using Mad = std::array<std::byte, mad_bytes>;
using Gid = std::array<std::byte, 16>;

// Of the general services interface (9.6.1.5, 13.5): where MADs go.
inline constexpr uint32_t gsi_qpn = 1;
inline constexpr uint32_t gsi_qkey = 0x80010000;

// Attribute IDs (12.6).
enum class Kind : uint16_t {
  Request = 0x10,
  MessageReceiptAcknowledgement = 0x11,
  Reject = 0x12,
  Reply = 0x13,
  ReadyToUse = 0x14,
  DisconnectRequest = 0x15,
  DisconnectReply = 0x16,
  ServiceRequest = 0x17,  // SIDR_REQ
  ServiceReply = 0x18,    // SIDR_REP
  LoadAlternatePath = 0x19,
  AlternatePathResponse = 0x1a,
};

// Bytes of private data.
inline constexpr size_t request_data_bytes = 92;
inline constexpr size_t reject_data_bytes = 148;
inline constexpr size_t reply_data_bytes = 196;
inline constexpr size_t ready_data_bytes = 224;
inline constexpr size_t disconnect_data_bytes = 220;
inline constexpr size_t disconnected_data_bytes = 224;
inline constexpr size_t service_request_data_bytes = 216;
inline constexpr size_t service_reply_data_bytes = 136;
inline constexpr size_t data_bytes_max = ready_data_bytes;

// Why a message is rejected (12.6.7.2); those that are used here.
enum class Reason : uint16_t {
  NoQueuePair = 1,
  NoResources = 3,
  Timeout = 4,
  InvalidCommunicationId = 6,
  InvalidServiceId = 8,
  InvalidTransport = 9,
  StaleConnection = 10,
  InvalidGid = 12,
  ConsumerDefined = 28,
};
// Which message a REJ or MRA is about.
enum class About : uint8_t { Request = 0, Reply = 1, Other = 2 };

// Status of a SIDR_REP (12.11.2).
enum class ServiceStatus : uint8_t { Valid = 0, NotSupported = 1, Rejected = 2, NoQueuePair = 3 };

enum class Transport : uint8_t { ReliableConnection = 0, Unreliable = 1, ReliableDatagram = 2, Extended = 3 };

struct Header {
  uint8_t base_version = 1;
  uint8_t management_class = 7;
  uint8_t class_version = 2;
  uint8_t method = 3;  // Send
  uint16_t status = 0;
  uint64_t transaction = 0;
  Kind kind = Kind::Request;
};

struct Request {
  uint32_t local_id = 0;
  uint64_t service = 0;
  uint64_t guid = 0;  // of the channel adapter
  uint32_t qkey = 0;
  uint32_t qpn = 0;
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t remote_response_timeout = 0;  // 4.096 us * 2^this
  Transport transport = Transport::ReliableConnection;
  bool flow_control = false;
  uint32_t psn = 0;
  uint8_t local_response_timeout = 0;
  uint8_t retry_count = 0;
  uint16_t pkey = 0xffff;
  uint8_t mtu = 0;  // enum ibv_mtu
  uint8_t rnr_retry_count = 0;
  uint8_t max_retries = 0;
  bool shared_receive_queue = false;
  Gid local_gid{};
  Gid remote_gid{};
  uint32_t flow_label = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint8_t service_level = 0;
  uint8_t ack_timeout = 0;
};

struct Acknowledgement {  // MRA
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  About about = About::Request;
  uint8_t service_timeout = 0;
};

struct Reject {
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  About about = About::Request;
  Reason reason = Reason::ConsumerDefined;
};

struct Reply {
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint32_t qkey = 0;
  uint32_t qpn = 0;
  uint32_t psn = 0;
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t target_ack_delay = 0;
  bool flow_control = false;
  uint8_t rnr_retry_count = 0;
  bool shared_receive_queue = false;
  uint64_t guid = 0;
};

// RTU and DREP.
struct Pair {
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
};

struct DisconnectRequest {
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint32_t remote_qpn = 0;
};

struct ServiceRequest {
  uint32_t request_id = 0;
  uint16_t pkey = 0xffff;
  uint64_t service = 0;
};

struct ServiceReply {
  uint32_t request_id = 0;
  ServiceStatus status = ServiceStatus::Valid;
  uint32_t qpn = 0;
  uint64_t service = 0;
  uint32_t qkey = 0;
  uint64_t guid =
      0;  // in the additional information, which a reply without an error has for nothing else; between peers of ours
};

// What stands in front of the program's data in a REQ or SIDR_REQ (A11.4).
struct IpHeader {
  static constexpr size_t bytes = 36;
  uint8_t version = 4;  // of IP
  uint16_t source_port = 0;
  Gid source{};  // an IPv4 address is in the last 4 bytes
  Gid destination{};
};
inline constexpr size_t program_request_bytes = request_data_bytes - IpHeader::bytes;
inline constexpr size_t program_service_request_bytes = service_request_data_bytes - IpHeader::bytes;

// A service ID of the port spaces of IP (A11.5): the port space's number and the port.
constexpr uint64_t service_of(uint16_t port_space, uint16_t port) noexcept {
  return uint64_t{port_space} << 16 | port;
}
constexpr uint16_t port_of(uint64_t service) noexcept { return static_cast<uint16_t>(service); }

// Nothing: it is no message of the communication manager in this version.
std::optional<Header> read_header(Bytes mad) noexcept;

// `mad` has mad_bytes. The private data is the rest, where each kind has it.
Request read_request(const Mad& mad) noexcept;
Acknowledgement read_acknowledgement(const Mad& mad) noexcept;
Reject read_reject(const Mad& mad) noexcept;
Reply read_reply(const Mad& mad) noexcept;
Pair read_pair(const Mad& mad) noexcept;
DisconnectRequest read_disconnect_request(const Mad& mad) noexcept;
ServiceRequest read_service_request(const Mad& mad) noexcept;
ServiceReply read_service_reply(const Mad& mad) noexcept;
// Nothing: another version than 4 or 6.
std::optional<IpHeader> read_ip_header(Bytes private_data) noexcept;

// The private data of a message of this kind, all of it.
std::span<const std::byte> private_data(const Mad& mad, Kind kind) noexcept;

// Each returns the whole MAD; private data above what the kind has is cut off.
Mad write(uint64_t transaction, const Request& message, Bytes data) noexcept;
Mad write(uint64_t transaction, const Acknowledgement& message) noexcept;
Mad write(uint64_t transaction, const Reject& message, Bytes data) noexcept;
Mad write(uint64_t transaction, const Reply& message, Bytes data) noexcept;
Mad write_ready_to_use(uint64_t transaction, const Pair& message, Bytes data) noexcept;
Mad write(uint64_t transaction, const DisconnectRequest& message, Bytes data) noexcept;
Mad write_disconnect_reply(uint64_t transaction, const Pair& message, Bytes data) noexcept;
Mad write(uint64_t transaction, const ServiceRequest& message, Bytes data) noexcept;
Mad write(uint64_t transaction, const ServiceReply& message, Bytes data) noexcept;
// Refuses a LAP: an APR with status 2, alternate paths are not supported (12.8.2).
Mad write_alternate_path_refusal(uint64_t transaction, const Pair& message) noexcept;
// Into IpHeader::bytes bytes.
void write_ip_header(const IpHeader& header, std::byte* out) noexcept;

}  // namespace weft::wire::cm
