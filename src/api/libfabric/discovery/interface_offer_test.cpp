// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A domain for each network interface: what is listed, what names and addresses choose, and what asking again gives.
#include "api/libfabric/discovery/interface_offer.hpp"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <cstdlib>
#include <string>

#include "api/libfabric/discovery/getinfo.hpp"
#include "api/libfabric/discovery/made_up_provider.hpp"
#include "api/libfabric/discovery/match.hpp"
#include "api/libfabric/text/log.hpp"

namespace weft::fi {
namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(kMadeUpAddress);
  memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size() - 1));
  return bytes;
}

std::string text_of(std::span<const std::byte> bytes) {
  return bytes.empty() ? "" : reinterpret_cast<const char*>(bytes.data());
}

// Two interfaces, the first with two addresses, and loopback. "far" is reached from the second one.
std::vector<providers::InterfaceDomain> made_up_domains(uint32_t, std::span<const std::byte> source,
                                                        std::span<const std::byte> destination) {
  std::vector<providers::InterfaceDomain> all = {{"if0", "net0", bytes_of("made://a0")},
                                                 {"if0", "net1", bytes_of("made://a1")},
                                                 {"if1", "net2", bytes_of("made://b0")},
                                                 {"lo", "net3", bytes_of("made://lo"), false}};
  if (!source.empty()) {
    std::erase_if(all, [&](const providers::InterfaceDomain& one) {
      return text_of(source) != text_of(one.source) + "!";
    });
    for (providers::InterfaceDomain& one : all) one.source.assign(source.begin(), source.end());
  } else if (text_of(destination) == "made://far") {
    std::swap(all[0], all[2]);
    for (size_t i = 1; i < all.size(); ++i) all[i].is_listed = false;
  }
  return all;
}

class InterfaceDomains : public ::testing::Test {
 protected:
  InterfaceDomains() {
    unsetenv("FI_PROVIDER");
    provider_.interface_domains = made_up_domains;
    log_reset();
  }

  std::string ask(const fi_info* hints = nullptr, const char* node = nullptr, uint64_t flags = 0) {
    fi_info* info = nullptr;
    const int status = get_info(catalogue_, kApiVersion, node, nullptr, flags, hints, &info, Abi::v1_3);
    infos_.reset(info);
    if (status != 0) return fi_error(status);
    std::string all;
    for (; info != nullptr; info = info->next)
      all += std::string(all.empty() ? "" : " ") + info->domain_attr->name + "/" + info->fabric_attr->name +
             "/" + static_cast<const char*>(info->src_addr);
    return all;
  }
  static std::string fi_error(int status) { return "error " + std::to_string(-status); }

  Provider provider_ = made_up_provider("cloth");
  const Provider* one_[1] = {&provider_};
  Catalogue catalogue_{one_, false};
  InfoPtr infos_;
};

TEST_F(InterfaceDomains, OneEntryForEachAddress) {
  EXPECT_EQ(ask(), "if0/net0/made://a0 if0/net1/made://a1 if1/net2/made://b0 lo/net3/made://lo");
  for (const fi_info* info = infos_.get(); info != nullptr; info = info->next) {
    const uint64_t reach = std::string(info->domain_attr->name) == "lo"
                               ? uint64_t{FI_LOCAL_COMM}
                               : uint64_t{FI_LOCAL_COMM | FI_REMOTE_COMM};
    EXPECT_EQ(info->caps & (FI_LOCAL_COMM | FI_REMOTE_COMM), reach) << info->domain_attr->name;
    EXPECT_EQ(info->domain_attr->caps, reach) << info->domain_attr->name;
  }
}

TEST_F(InterfaceDomains, Names) {
  InfoPtr hints = made_up_hints();
  ASSERT_TRUE(assign_string(&hints->domain_attr->name, "if1"));
  EXPECT_EQ(ask(hints.get()), "if1/net2/made://b0");
  ASSERT_TRUE(assign_string(&hints->domain_attr->name, "if0"));
  EXPECT_EQ(ask(hints.get()), "if0/net0/made://a0 if0/net1/made://a1");
  ASSERT_TRUE(assign_string(&hints->fabric_attr->name, "net1"));
  EXPECT_EQ(ask(hints.get()), "if0/net1/made://a1");
  ASSERT_TRUE(assign_string(&hints->fabric_attr->name, "net2"));
  EXPECT_EQ(ask(hints.get()), "error 61") << "that network is another interface's";
}

TEST_F(InterfaceDomains, TheNameOfTheProviderIsAnyInterface) {
  InfoPtr hints = made_up_hints();
  ASSERT_TRUE(assign_string(&hints->domain_attr->name, "cloth"));
  EXPECT_EQ(ask(hints.get()), "cloth/cloth/made://");
}

TEST_F(InterfaceDomains, Sources) {
  EXPECT_EQ(ask(nullptr, "b0", FI_SOURCE), "if1/net2/made://b0!");
  EXPECT_EQ(ask(nullptr, "any", FI_SOURCE), "cloth/cloth/made://any!") << "no interface has it";
}

TEST_F(InterfaceDomains, Destinations) {
  EXPECT_EQ(ask(nullptr, "far"), "if1/net2/made://b0");
  InfoPtr hints = made_up_hints();
  ASSERT_TRUE(assign_string(&hints->domain_attr->name, "if0"));
  EXPECT_EQ(ask(hints.get(), "far"), "if0/net1/made://a1")
      << "the interface that was asked, not the best way";
}

TEST_F(InterfaceDomains, WhoLeavesTheHostDoesNotGetLoopback) {
  InfoPtr hints = made_up_hints();
  hints->caps = FI_MSG | FI_REMOTE_COMM;
  EXPECT_EQ(ask(hints.get()), "if0/net0/made://a0 if0/net1/made://a1 if1/net2/made://b0");
  provider_.interface_domains = [](uint32_t, std::span<const std::byte>, std::span<const std::byte>) {
    return std::vector<providers::InterfaceDomain>{{"lo", "net3", bytes_of("made://lo"), false}};
  };
  EXPECT_EQ(ask(hints.get()), "cloth/cloth/made://") << "nothing else is up: any interface that comes";
}

TEST_F(InterfaceDomains, OpenedByItsName) {
  EXPECT_NE(ask(), "");
  const auto opened = match_any(provider_, kApiVersion, infos_->next->next);
  ASSERT_TRUE(opened) << opened.error().why;
  EXPECT_STREQ((*opened)->domain_attr->name, "if1");
  EXPECT_EQ(text_of(source_in_domain(provider_, FI_ADDR_STR, *infos_)), "made://a0");
  // The port of its own source is not that of other endpoints of the domain.
  fi_info one = *infos_;
  std::vector<std::byte> source = bytes_of("made://a1!");
  one.src_addr = source.data();
  one.src_addrlen = source.size();
  EXPECT_EQ(text_of(source_in_domain(provider_, FI_ADDR_STR, one)), "made://a1");
  ASSERT_TRUE(assign_string(&infos_->domain_attr->name, "gone"));
  const auto refused = match_any(provider_, kApiVersion, infos_.get());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().why.find("\"gone\" was asked, cloth offers \"if0\", \"if1\", \"lo\", \"cloth\""),
            std::string::npos)
      << refused.error().why;
}

}  // namespace
}  // namespace weft::fi
