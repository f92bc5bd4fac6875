// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Offsets are those of IBTA volume 1, 12.6 and 12.11, counted by hand.
#include "wire/cm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace weft::wire::cm {
namespace {

std::vector<std::byte> bytes_from(size_t count, unsigned first) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(first + i);
  return bytes;
}
uint8_t at(const Mad& mad, size_t offset) { return load_byte(&mad[24 + offset]); }

TEST(CmMessages, HeaderNamesClassMethodAndAttribute) {
  const Mad mad = write_ready_to_use(0x0102030405060708, {1, 2}, {});
  EXPECT_EQ(load_byte(&mad[0]), 1);
  EXPECT_EQ(load_byte(&mad[1]), 7);
  EXPECT_EQ(load_byte(&mad[2]), 2);
  EXPECT_EQ(load_byte(&mad[3]), 3);
  EXPECT_EQ(load_big<uint64_t>(&mad[8]), 0x0102030405060708u);
  EXPECT_EQ(load_big<uint16_t>(&mad[16]), 0x14);
  const auto header = read_header(mad);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->kind, Kind::ReadyToUse);
  EXPECT_EQ(header->transaction, 0x0102030405060708u);
}

TEST(CmMessages, OtherClassesVersionsMethodsAttributesAndLengthsAreRefused) {
  const Mad good = write_ready_to_use(1, {1, 2}, {});
  for (const auto& [offset, value] :
       {std::pair<size_t, int>{0, 2}, {1, 3}, {2, 1}, {3, 0x83}, {17, 0x0f}, {17, 0x1b}, {16, 1}}) {
    Mad bad = good;
    bad[offset] = static_cast<std::byte>(value);
    EXPECT_FALSE(read_header(bad)) << offset << ' ' << value;
  }
  EXPECT_FALSE(read_header(std::span(good).first(255)));
  EXPECT_FALSE(read_header({}));
}

TEST(CmMessages, RequestHasItsFieldsWhereTheSpecificationPutsThem) {
  Request m;
  m.local_id = 0x11223344;
  m.service = service_of(0x0106, 7471);
  m.guid = 0x0102030405060708;
  m.qkey = 0x55667788;
  m.qpn = 0xabcdef;
  m.responder_resources = 16;
  m.initiator_depth = 17;
  m.remote_response_timeout = 20;
  m.flow_control = true;
  m.psn = 0x123456;
  m.local_response_timeout = 19;
  m.retry_count = 7;
  m.mtu = 5;
  m.rnr_retry_count = 6;
  m.max_retries = 15;
  m.shared_receive_queue = true;
  m.local_gid.fill(std::byte{0xa1});
  m.remote_gid.fill(std::byte{0xb2});
  m.flow_label = 0xfedcb;
  m.traffic_class = 0x28;
  m.hop_limit = 64;
  m.service_level = 3;
  m.ack_timeout = 17;
  const auto data = bytes_from(request_data_bytes, 1);
  const Mad mad = write(9, m, data);
  EXPECT_EQ(load_big<uint32_t>(&mad[24]), m.local_id);
  EXPECT_EQ(load_big<uint64_t>(&mad[24 + 8]), 0x01061d2fu);
  EXPECT_EQ(load_big<uint64_t>(&mad[24 + 16]), m.guid);
  EXPECT_EQ(at(mad, 32), 0xab);
  EXPECT_EQ(at(mad, 34), 0xef);
  EXPECT_EQ(at(mad, 35), 16);
  EXPECT_EQ(at(mad, 39), 17);
  EXPECT_EQ(at(mad, 43), 20 << 3 | 1);
  EXPECT_EQ(at(mad, 44), 0x12);
  EXPECT_EQ(at(mad, 47), 19 << 3 | 7);
  EXPECT_EQ(at(mad, 50), 5 << 4 | 6);
  EXPECT_EQ(at(mad, 51), 15 << 4 | 8);
  EXPECT_EQ(at(mad, 56), 0xa1);
  EXPECT_EQ(at(mad, 72), 0xb2);
  EXPECT_EQ(load_big<uint32_t>(&mad[24 + 88]) >> 12, 0xfedcbu);
  EXPECT_EQ(at(mad, 92), 0x28);
  EXPECT_EQ(at(mad, 93), 64);
  EXPECT_EQ(at(mad, 94), 3 << 4);
  EXPECT_EQ(at(mad, 95), 17 << 3);
  EXPECT_EQ(at(mad, 140), 1);
  const Request back = read_request(mad);
  EXPECT_EQ(back.qpn, m.qpn);
  EXPECT_EQ(back.psn, m.psn);
  EXPECT_EQ(back.transport, Transport::ReliableConnection);
  EXPECT_EQ(back.remote_response_timeout, 20);
  EXPECT_EQ(back.local_response_timeout, 19);
  EXPECT_EQ(back.flow_label, m.flow_label);
  EXPECT_EQ(back.local_gid, m.local_gid);
  EXPECT_EQ(back.remote_gid, m.remote_gid);
  EXPECT_EQ(back.ack_timeout, 17);
  EXPECT_TRUE(back.shared_receive_queue);
  EXPECT_TRUE(std::ranges::equal(private_data(mad, Kind::Request), data));
}

TEST(CmMessages, ReplyHasItsFieldsWhereTheSpecificationPutsThem) {
  Reply m{.local_id = 1,
          .remote_id = 2,
          .qkey = 3,
          .qpn = 0x0a0b0c,
          .psn = 0x0d0e0f,
          .responder_resources = 4,
          .initiator_depth = 5};
  m.target_ack_delay = 21;
  m.flow_control = true;
  m.rnr_retry_count = 7;
  m.shared_receive_queue = true;
  m.guid = 0x1112131415161718;
  const Mad mad = write(9, m, bytes_from(reply_data_bytes, 7));
  EXPECT_EQ(at(mad, 12), 0x0a);
  EXPECT_EQ(at(mad, 20), 0x0d);
  EXPECT_EQ(at(mad, 24), 4);
  EXPECT_EQ(at(mad, 25), 5);
  EXPECT_EQ(at(mad, 26), 21 << 3 | 1);
  EXPECT_EQ(at(mad, 27), 7 << 5 | 16);
  EXPECT_EQ(load_big<uint64_t>(&mad[24 + 28]), m.guid);
  EXPECT_EQ(at(mad, 36), 7);
  const Reply back = read_reply(mad);
  EXPECT_EQ(back.qpn, m.qpn);
  EXPECT_EQ(back.psn, m.psn);
  EXPECT_EQ(back.guid, m.guid);
  EXPECT_EQ(back.rnr_retry_count, 7);
}

TEST(CmMessages, TheOthersComeBackAsTheyWereWritten) {
  const Mad mra = write(1, Acknowledgement{3, 4, About::Reply, 24});
  EXPECT_EQ(at(mra, 8), 0x40);
  EXPECT_EQ(at(mra, 9), 24 << 3);
  EXPECT_EQ(read_acknowledgement(mra).about, About::Reply);
  const Mad rej =
      write(1, Reject{3, 4, About::Other, Reason::ConsumerDefined}, bytes_from(reject_data_bytes, 1));
  EXPECT_EQ(at(rej, 8), 0x80);
  EXPECT_EQ(at(rej, 11), 28);
  EXPECT_EQ(at(rej, 84), 1);
  EXPECT_EQ(read_reject(rej).reason, Reason::ConsumerDefined);
  const Mad dreq = write(1, DisconnectRequest{3, 4, 0x112233}, {});
  EXPECT_EQ(at(dreq, 8), 0x11);
  EXPECT_EQ(read_disconnect_request(dreq).remote_qpn, 0x112233u);
  const Mad sidr = write(1, ServiceRequest{5, 0xffff, service_of(0x0111, 9)}, {});
  EXPECT_EQ(at(sidr, 4), 0xff);
  EXPECT_EQ(at(sidr, 15), 9);
  EXPECT_EQ(read_service_request(sidr).service, 0x01110009u);
  const ServiceReply reply{5, ServiceStatus::Valid, 0x445566, 7, 8, 0x0102030405060708};
  const Mad answer = write(1, reply, bytes_from(service_reply_data_bytes, 9));
  EXPECT_EQ(at(answer, 8), 0x44);
  EXPECT_EQ(at(answer, 96), 9);
  EXPECT_EQ(read_service_reply(answer).guid, reply.guid);
  EXPECT_EQ(read_service_reply(write(1, ServiceReply{5, ServiceStatus::Rejected, 0, 7, 0, 0}, {})).guid, 0u);
}

TEST(CmMessages, IpHeaderHasAddressesAsAnnexA11Says) {
  IpHeader header;
  header.source_port = 0x1234;
  header.source[15] = std::byte{1};
  header.destination[15] = std::byte{2};
  std::array<std::byte, IpHeader::bytes> bytes{};
  write_ip_header(header, bytes.data());
  EXPECT_EQ(load_byte(&bytes[1]), 0x40);
  EXPECT_EQ(load_big<uint16_t>(&bytes[2]), 0x1234);
  EXPECT_EQ(load_byte(&bytes[19]), 1);
  EXPECT_EQ(load_byte(&bytes[35]), 2);
  ASSERT_TRUE(read_ip_header(bytes));
  EXPECT_EQ(read_ip_header(bytes)->source_port, 0x1234);
  bytes[1] = std::byte{0x50};
  EXPECT_FALSE(read_ip_header(bytes));
  bytes[1] = std::byte{0x40};
  bytes[0] = std::byte{1};
  EXPECT_FALSE(read_ip_header(bytes));
}

}  // namespace
}  // namespace weft::wire::cm
