// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Address handles that answer a datagram: what is taken from its header.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "api/verbs/library/fake_provider.hpp"

namespace weft::verbs {
namespace {

using fake::knobs;
using fake::Opened;

// 40 bytes as RoCEv2 over IPv4 has them: the first 20 are undefined.
ibv_grh ipv4(uint8_t from, uint8_t to, uint8_t first = 0xee) {
  uint8_t bytes[40];
  std::memset(bytes, first, 20);
  uint8_t header[20] = {0x45, 0x10, 0, 60, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, from, 10, 0, 0, to};
  uint32_t sum = 0;
  for (int i = 0; i < 20; i += 2) sum += static_cast<uint32_t>(header[i] << 8 | header[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  header[10] = static_cast<uint8_t>(~sum >> 8);
  header[11] = static_cast<uint8_t>(~sum);
  std::memcpy(bytes + 20, header, 20);
  ibv_grh grh;
  std::memcpy(&grh, bytes, sizeof grh);
  return grh;
}

ibv_gid mapped(uint8_t last) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[12] = 10;
  gid.raw[15] = last;
  return gid;
}

class VerbsAddress : public testing::Test {
 protected:
  VerbsAddress() {
    knobs.gids[0].raw[0] = 0xfd;
    knobs.gids[2] = mapped(2);
    wc_.slid = 3;
    wc_.sl = 4;
    wc_.wc_flags = IBV_WC_GRH;
  }
  Opened opened_;
  ibv_wc wc_{};
  ibv_ah_attr attr_{};
};

TEST_F(VerbsAddress, WithoutAHeaderIsTheLid) {
  wc_.wc_flags = 0;
  ASSERT_EQ(init_ah_from_wc(opened_.context, 1, &wc_, nullptr, &attr_), 0);
  EXPECT_EQ(attr_.dlid, 3);
  EXPECT_EQ(attr_.sl, 4);
  EXPECT_EQ(attr_.port_num, 1);
  EXPECT_EQ(attr_.is_global, 0);
}

TEST_F(VerbsAddress, OfIpv6IsTheSourceAndTheEntryItCameTo) {
  ibv_grh grh{};
  grh.version_tclass_flow = htonl(6U << 28 | 0x12U << 20 | 0x34567);
  grh.sgid.raw[0] = 0xfd;
  grh.sgid.raw[15] = 9;
  grh.dgid = knobs.gids[0];
  ASSERT_EQ(init_ah_from_wc(opened_.context, 1, &wc_, &grh, &attr_), 0);
  EXPECT_EQ(attr_.is_global, 1);
  EXPECT_EQ(attr_.grh.dgid.raw[15], 9);
  EXPECT_EQ(attr_.grh.sgid_index, 0);
  EXPECT_EQ(attr_.grh.traffic_class, 0x12);
  EXPECT_EQ(attr_.grh.flow_label, 0x34567U);
  EXPECT_GT(attr_.grh.hop_limit, 1);
}

TEST_F(VerbsAddress, OfAGroupIsTheFirstEntryInTheSendersSubnet) {
  // Two processes at link-local addresses differ in the port, which stands in the first half.
  const ibv_gid own = {{0xfd, 0x57, 0x45, 0x46, 0x54, 0x02, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};
  knobs.gids[2] = own;
  ibv_grh grh{};
  grh.version_tclass_flow = htonl(6U << 28);
  grh.sgid = own;
  grh.sgid.raw[7] = 99;
  grh.dgid.raw[0] = 0xff;
  grh.dgid.raw[1] = 0x0e;
  ASSERT_EQ(init_ah_from_wc(opened_.context, 1, &wc_, &grh, &attr_), 0);
  EXPECT_EQ(attr_.grh.sgid_index, 2);
  EXPECT_EQ(attr_.grh.dgid.raw[7], 99);
  grh.sgid.raw[5] = 3;
  EXPECT_EQ(init_ah_from_wc(opened_.context, 1, &wc_, &grh, &attr_), -1);
  EXPECT_EQ(errno, ENODATA);
}

TEST_F(VerbsAddress, OfIpv4IsInTheSecondHalfWhateverTheFirstHas) {
  for (const uint8_t first : {0xee, 0x00, 0x66}) {
    ibv_grh grh = ipv4(7, 2, first);
    ASSERT_EQ(init_ah_from_wc(opened_.context, 1, &wc_, &grh, &attr_), 0);
    const ibv_gid wanted = mapped(7);
    EXPECT_EQ(std::memcmp(&attr_.grh.dgid, &wanted, sizeof wanted), 0);
    EXPECT_EQ(attr_.grh.sgid_index, 2);
    EXPECT_EQ(attr_.grh.traffic_class, 0x10);
  }
}

TEST_F(VerbsAddress, RefusedAreAWrongChecksumAnotherNetworkAndStrangers) {
  ibv_grh grh = ipv4(7, 2);
  reinterpret_cast<uint8_t*>(&grh)[30] ^= 1;
  EXPECT_EQ(init_ah_from_wc(opened_.context, 1, &wc_, &grh, &attr_), -1);
  EXPECT_EQ(errno, EINVAL);
  grh = ipv4(7, 3);  // an address that is not ours
  EXPECT_EQ(init_ah_from_wc(opened_.context, 1, &wc_, &grh, &attr_), -1);
  EXPECT_EQ(errno, ENODATA);
  EXPECT_EQ(init_ah_from_wc(opened_.context, 1, &wc_, nullptr, &attr_), -1);
  knobs.link_layer = IBV_LINK_LAYER_INFINIBAND;
  grh = ipv4(7, 2);
  EXPECT_EQ(init_ah_from_wc(opened_.context, 1, &wc_, &grh, &attr_), -1);
}

TEST_F(VerbsAddress, AHandleIsMadeOfIt) {
  ibv_pd* pd = alloc_pd(opened_.context);
  ibv_grh grh = ipv4(7, 2);
  ibv_ah* ah = create_ah_from_wc(pd, &wc_, &grh, 1);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ah->pd, pd);
  EXPECT_EQ(destroy_ah(ah), 0);
  grh = ipv4(7, 3);
  EXPECT_EQ(create_ah_from_wc(pd, &wc_, &grh, 1), nullptr);
  EXPECT_EQ(dealloc_pd(pd), 0);
}

}  // namespace
}  // namespace weft::verbs
