// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo(3): node, service, flags, FI_PROVIDER, order, reasons. fi_fabric(3): which provider is meant.
#include "api/libfabric/discovery/getinfo.hpp"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>
#include <weft/libfabric_retired.hpp>

#include <cstdlib>
#include <string>

#include "api/libfabric/abi/values.hpp"
#include "api/libfabric/discovery/made_up_provider.hpp"
#include "api/libfabric/discovery/refusals.hpp"
#include "api/libfabric/entry/fabric.hpp"
#include "api/libfabric/text/log.hpp"

namespace weft::fi {
namespace {

class Getinfo : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("FI_PROVIDER");
    unsetenv("FI_LOG_LEVEL");
    log_reset();
    (void)at_end();
  }
  void TearDown() override { SetUp(); }

  int ask(const char* node = nullptr, const char* service = nullptr, uint64_t flags = 0,
          const fi_info* hints = nullptr, uint32_t version = kApiVersion, Abi abi = Abi::v1_9) {
    fi_info* info = nullptr;
    testing::internal::CaptureStderr();
    const int status = get_info(catalogue_, version, node, service, flags, hints, &info, abi);
    log_ = testing::internal::GetCapturedStderr();
    infos_.reset(info);
    return status;
  }

  // The same with all that level info tells.
  int ask_aloud(const char* node = nullptr, const fi_info* hints = nullptr) {
    setenv("FI_LOG_LEVEL", "info", 1);
    log_reset();
    const int status = ask(node, nullptr, 0, hints);
    unsetenv("FI_LOG_LEVEL");
    log_reset();
    return status;
  }

  // What is written when the program ends.
  static std::string at_end() {
    testing::internal::CaptureStderr();
    report_nothing_found();
    return testing::internal::GetCapturedStderr();
  }

  std::string names() const {
    std::string all;
    for (const fi_info* info = infos_.get(); info != nullptr; info = info->next)
      all += std::string(info->fabric_attr->prov_name != nullptr ? info->fabric_attr->prov_name : "-") + " ";
    return all;
  }

  static std::string text(const void* address) {
    return address != nullptr ? static_cast<const char*>(address) : "";
  }

  Provider first_ = made_up_provider("cloth");
  Provider second_ = made_up_provider("silk");
  const Provider* both_[2] = {&first_, &second_};
  Catalogue catalogue_{both_, false};
  InfoPtr infos_;
  std::string log_;
};

TEST_F(Getinfo, AllProvidersInTheirOrder) {
  EXPECT_EQ(ask(), 0);
  EXPECT_EQ(names(), "cloth silk ");
  EXPECT_EQ(log_, "");
  EXPECT_EQ(infos_->fabric_attr->api_version, kApiVersion);
}

TEST_F(Getinfo, ProviderVariable) {
  setenv("FI_PROVIDER", "silk", 1);
  EXPECT_EQ(ask(), 0);
  EXPECT_EQ(names(), "silk ");
  setenv("FI_PROVIDER", "^Silk", 1);
  EXPECT_EQ(ask(), 0);
  EXPECT_EQ(names(), "cloth ");
  setenv("FI_PROVIDER", "", 1);
  EXPECT_EQ(ask(), 0);
  EXPECT_EQ(names(), "cloth silk ");
  setenv("FI_PROVIDER", "tcp", 1);
  EXPECT_EQ(ask(), -FI_ENODATA);
  EXPECT_EQ(infos_, nullptr);
  EXPECT_EQ(log_, "");
  EXPECT_EQ(ask_aloud(), -FI_ENODATA);
  EXPECT_NE(log_.find(":cloth:core:<info> not returned: left out by FI_PROVIDER=tcp\n"), std::string::npos)
      << log_;
  EXPECT_NE(log_.find(":silk:core:<info> not returned: left out by FI_PROVIDER=tcp\n"), std::string::npos)
      << log_;
  EXPECT_NE(log_.find("<info> FI_PROVIDER: no provider is named \"tcp\"; there are: cloth, silk\n"),
            std::string::npos)
      << log_;
  setenv("FI_PROVIDER", "^tcp,silk", 1);
  EXPECT_EQ(ask_aloud(), 0);
  EXPECT_NE(log_.find("no provider is named \"tcp\""), std::string::npos) << log_;
  EXPECT_EQ(log_.find("no provider is named \"silk\""), std::string::npos) << log_;
}

TEST_F(Getinfo, ProviderNameInHints) {
  const InfoPtr hints = made_up_hints();
  ASSERT_TRUE(assign_string(&hints->fabric_attr->prov_name, "silk"));
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), 0);
  EXPECT_EQ(names(), "silk ");
  ASSERT_TRUE(assign_string(&hints->fabric_attr->prov_name, "silk;ofi_rxm"));
  EXPECT_EQ(ask_aloud(nullptr, hints.get()), -FI_ENODATA);
  EXPECT_NE(log_.find("fabric_attr->prov_name: \"silk;ofi_rxm\" was asked, this is \"silk\"\n"),
            std::string::npos)
      << log_;
  EXPECT_NE(
      log_.find("fabric_attr->prov_name: no provider is named \"silk;ofi_rxm\"; there are: cloth, silk\n"),
      std::string::npos)
      << log_;
  ASSERT_TRUE(assign_string(&hints->fabric_attr->prov_name, "^silk"));
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), 0);
  EXPECT_EQ(names(), "cloth ");
}

TEST_F(Getinfo, ReasonsOneLineForEachProvider) {
  const InfoPtr hints = made_up_hints();
  hints->caps = FI_COLLECTIVE;
  EXPECT_EQ(ask_aloud(nullptr, hints.get()), -FI_ENODATA);
  EXPECT_EQ(std::count(log_.begin(), log_.end(), '\n'), 2) << log_;
  EXPECT_NE(log_.find(":silk:core:<info> not returned: caps: FI_COLLECTIVE was asked, silk offers "),
            std::string::npos)
      << log_;
}

TEST_F(Getinfo, OneWarningWhenTheProgramEnds) {
  const InfoPtr hints = made_up_hints();
  ASSERT_TRUE(assign_string(&hints->fabric_attr->prov_name, "silk"));
  hints->caps = FI_COLLECTIVE;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), -FI_ENODATA);
    EXPECT_EQ(log_, "");
  }
  std::string said = at_end();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(
      said.find(":silk:core:<warn> fi_getinfo found nothing: caps: FI_COLLECTIVE was asked, silk offers "),
      std::string::npos)
      << said;
  EXPECT_EQ(at_end(), "");
}

TEST_F(Getinfo, NoWarningWhenALaterCallFindsSomething) {
  const InfoPtr hints = made_up_hints();
  ASSERT_TRUE(assign_string(&hints->fabric_attr->prov_name, "silk"));
  hints->caps = FI_COLLECTIVE;
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), -FI_ENODATA);
  EXPECT_EQ(ask(), 0);
  EXPECT_EQ(at_end(), "");
  // Probes for anybody, and for providers that are not there, after something was found.
  ASSERT_TRUE(assign_string(&hints->fabric_attr->prov_name, "efa"));
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), -FI_ENODATA);
  ASSERT_TRUE(assign_string(&hints->fabric_attr->prov_name, nullptr));
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), -FI_ENODATA);
  EXPECT_EQ(at_end(), "");
}

TEST_F(Getinfo, TheNamedProviderAndNoOther) {
  const InfoPtr hints = made_up_hints();
  setenv("FI_PROVIDER", "silk", 1);
  hints->ep_attr->type = FI_EP_MSG;
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), -FI_ENODATA);
  ASSERT_TRUE(assign_string(&hints->fabric_attr->prov_name, "cloth"));
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), -FI_ENODATA);
  const std::string said = at_end();
  EXPECT_EQ(said.find("left out by"), std::string::npos) << said;
  EXPECT_NE(said.find("FI_PROVIDER=silk leaves out \"cloth\", which fabric_attr->prov_name asks for\n"),
            std::string::npos)
      << said;
}

TEST_F(Getinfo, NodeAndServiceAreTheDestination) {
  EXPECT_EQ(ask("host", "5"), 0);
  EXPECT_EQ(text(infos_->dest_addr), "made://host:5");
  EXPECT_EQ(infos_->dest_addrlen, kMadeUpAddress);
  EXPECT_EQ(text(infos_->src_addr), "made://") << "chosen when the endpoint is opened";
  EXPECT_EQ(infos_->src_addrlen, kMadeUpAddress);
}

TEST_F(Getinfo, OrTheSource) {
  EXPECT_EQ(ask(nullptr, "5", FI_SOURCE), 0);
  EXPECT_EQ(text(infos_->src_addr), "made://:5!");
  EXPECT_EQ(infos_->dest_addr, nullptr);
  EXPECT_EQ(ask(nullptr, nullptr, FI_SOURCE), -FI_EINVAL);
  EXPECT_NE(log_.find("FI_SOURCE was given without node and service"), std::string::npos) << log_;
}

TEST_F(Getinfo, AddressesOfTheHints) {
  const InfoPtr hints = made_up_hints();
  char full[kMadeUpAddress] = "made://full";
  ASSERT_TRUE(assign_bytes(&hints->src_addr, &hints->src_addrlen, full, sizeof full));
  ASSERT_TRUE(assign_bytes(&hints->dest_addr, &hints->dest_addrlen, "made://short", 13));
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), 0);
  EXPECT_EQ(text(infos_->src_addr), "made://full");
  EXPECT_EQ(text(infos_->dest_addr), "made://short");
  EXPECT_EQ(infos_->dest_addrlen, kMadeUpAddress);
  // node and service win over the destination; with FI_SOURCE over the source.
  EXPECT_EQ(ask("host", nullptr, 0, hints.get()), 0);
  EXPECT_EQ(text(infos_->dest_addr), "made://host");
  EXPECT_EQ(text(infos_->src_addr), "made://full");
  EXPECT_EQ(ask("host", nullptr, FI_SOURCE, hints.get()), 0);
  EXPECT_EQ(text(infos_->src_addr), "made://host!");
  EXPECT_EQ(text(infos_->dest_addr), "made://short");
}

TEST_F(Getinfo, AddressesThatDoNotResolve) {
  EXPECT_EQ(ask_aloud("nowhere"), -FI_ENODATA);
  EXPECT_NE(log_.find("node: there is no \"nowhere\""), std::string::npos) << log_;
  first_.offers = second_.offers = [](const Provider&) -> const fi_info* {
    static const MadeUpOffer offer(FI_SOCKADDR_IN);
    return &offer.info;
  };
  const InfoPtr hints = made_up_hints();
  ASSERT_TRUE(assign_bytes(&hints->dest_addr, &hints->dest_addrlen, "12345", 5));
  EXPECT_EQ(ask_aloud(nullptr, hints.get()), -FI_ENODATA);
  EXPECT_NE(log_.find("dest_addr: a length of 5 was given, cloth has addresses of 32"), std::string::npos)
      << log_;
}

TEST_F(Getinfo, ProviderAttributesOnly) {
  const InfoPtr hints = made_up_hints();
  hints->caps = FI_COLLECTIVE;
  EXPECT_EQ(ask("nowhere", nullptr, FI_PROV_ATTR_ONLY, hints.get()), 0);
  EXPECT_EQ(names(), "cloth silk ");
  EXPECT_EQ(infos_->fabric_attr->prov_version, FI_VERSION(2, 1));
  EXPECT_EQ(infos_->caps, 0u);
  EXPECT_EQ(infos_->domain_attr->name, nullptr);
}

TEST_F(Getinfo, Versions) {
  EXPECT_EQ(ask(nullptr, nullptr, 0, nullptr, FI_VERSION(2, 7)), -FI_ENOSYS);
  EXPECT_NE(log_.find("version: API 2.7 was asked, this is 2.6"), std::string::npos) << log_;
  EXPECT_EQ(ask(nullptr, nullptr, 0, nullptr, FI_VERSION(3, 0)), -FI_ENOSYS);
  EXPECT_EQ(ask(nullptr, nullptr, 0, nullptr, FI_VERSION(1, 0)), 0);
  EXPECT_EQ(infos_->fabric_attr->api_version, FI_VERSION(1, 0));
  EXPECT_EQ(infos_->domain_attr->mr_mode, retired::mr_scalable);
  EXPECT_EQ(get_info(catalogue_, kApiVersion, nullptr, nullptr, 0, nullptr, nullptr), -FI_EINVAL);
}

// Programs that ask what fi_version(3) says have the structures of what they were linked with.
TEST_F(Getinfo, TheVersionOfTheNodeIsServed) {
  EXPECT_EQ(ask(nullptr, nullptr, 0, nullptr, kApiVersion, Abi::v1_3), 0);
  EXPECT_EQ(infos_->fabric_attr->api_version, FI_VERSION(1, 19));
  EXPECT_EQ(ask(nullptr, nullptr, 0, nullptr, kApiVersion, Abi::v1_7), 0);
  EXPECT_EQ(infos_->fabric_attr->api_version, FI_VERSION(1, 22));
  EXPECT_EQ(ask(nullptr, nullptr, 0, nullptr, FI_VERSION(1, 17), Abi::v1_0), 0);
  EXPECT_EQ(infos_->fabric_attr->api_version, FI_VERSION(1, 17))
      << "an object without versions is bound there";
  EXPECT_EQ(ask(nullptr, nullptr, 0, nullptr, FI_VERSION(1, 17), Abi::v1_9), 0);
  EXPECT_EQ(infos_->fabric_attr->api_version, FI_VERSION(1, 17));
}

// fi_domain(3): what later generations ask for and is not there is refused, and only of programs that have the fields.
TEST_F(Getinfo, FieldsOfLaterGenerations) {
  InfoPtr hints = made_up_hints();
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), 0);
  const layout::DomainTail given = layout::tail_of(*infos_->domain_attr, Abi::v1_9);
  EXPECT_EQ(given.max_ep_auth_key, 0U);
  EXPECT_EQ(given.max_group_id, 0U);
  EXPECT_EQ(given.max_cntr_value, UINT64_MAX);
  EXPECT_EQ(given.max_err_cntr_value, UINT64_MAX);
  layout::set_tail(*hints->domain_attr, {.max_cntr_value = 1 << 20});
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), 0);
  layout::set_tail(*hints->domain_attr, {.max_ep_auth_key = 1});
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), -FI_ENODATA);
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get(), FI_VERSION(1, 20)), -FI_ENODATA);
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get(), FI_VERSION(1, 19)), 0);
  layout::set_tail(*hints->domain_attr, {.max_group_id = 1});
  EXPECT_EQ(ask_aloud(nullptr, hints.get()), -FI_ENODATA);
  EXPECT_NE(log_.find("max_group_id: 1 was asked"), std::string::npos) << log_;
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get(), FI_VERSION(1, 22)), 0);
  layout::set_tail(*hints->domain_attr, {});
  hints->domain_attr->auth_key_size = later::av_auth_key;
  EXPECT_EQ(ask_aloud(nullptr, hints.get()), -FI_ENODATA);
  EXPECT_NE(log_.find("FI_AV_AUTH_KEY"), std::string::npos) << log_;
}

// A plugin with one fixed answer. It records the version and the keys that it was asked for.
struct MadeUpPlugin final : PluginProvider {
  const char* name() const noexcept override { return "linen"; }
  uint32_t version() const noexcept override { return FI_VERSION(3, 2); }
  uint32_t api_version() const noexcept override { return latest; }
  Result<InfoPtr> ask(uint32_t api_version, const char*, const char*, uint64_t,
                      const fi_info* hints) const override {
    asked = api_version;
    keys = hints != nullptr ? layout::tail_of(*hints->domain_attr, Abi::v1_9).max_ep_auth_key : 0;
    if (FI_VERSION_LT(latest, api_version)) return Error{FI_ENODATA, "too old"};
    InfoPtr info(dup_info(nullptr));
    if (!assign_string(&info->fabric_attr->prov_name, name())) throw std::bad_alloc();
    layout::set_tail(*info->domain_attr, {.max_ep_auth_key = 3, .max_cntr_value = uint64_t{1} << 48});
    return info;
  }
  int open_fabric(fi_fabric_attr&, fid_fabric**, void*) const override { return -FI_ENOSYS; }

  uint32_t latest = FI_VERSION(2, 6);
  mutable uint32_t asked = 0;
  mutable size_t keys = 0;
};

// What our providers have not may be what a plugin has: it is asked, and its fields stay as they are.
TEST_F(Getinfo, FieldsOfPluginsOfLaterGenerations) {
  const MadeUpPlugin linen;
  const PluginProvider* const plugins[] = {&linen};
  catalogue_.plugins = plugins;
  InfoPtr hints = made_up_hints();
  layout::set_tail(*hints->domain_attr, {.max_ep_auth_key = 2});
  ASSERT_EQ(ask(nullptr, nullptr, 0, hints.get()), 0);
  EXPECT_EQ(names(), "linen ");
  EXPECT_EQ(linen.keys, 2U);
  const layout::DomainTail given = layout::tail_of(*infos_->domain_attr, Abi::v1_9);
  EXPECT_EQ(given.max_ep_auth_key, 3U);
  EXPECT_EQ(given.max_cntr_value, uint64_t{1} << 48);
  // fi_getinfo(3): every provider answers FI_PROV_ATTR_ONLY.
  ASSERT_EQ(ask(nullptr, nullptr, FI_PROV_ATTR_ONLY, hints.get()), 0);
  EXPECT_EQ(names(), "cloth silk linen ");
}

// A program that asks what fi_version(3) says is served by plugins that are as old as its structures.
TEST_F(Getinfo, PluginsOfTheGenerationOfTheProgram) {
  MadeUpPlugin linen;
  linen.latest = FI_VERSION(1, 17);
  const PluginProvider* const plugins[] = {&linen};
  catalogue_.plugins = plugins;
  EXPECT_EQ(ask(nullptr, nullptr, 0, nullptr, kApiVersion, Abi::v1_3), 0);
  EXPECT_EQ(names(), "cloth silk linen ");
  EXPECT_EQ(linen.asked, FI_VERSION(1, 17));
  EXPECT_EQ(ask(nullptr, nullptr, 0, nullptr, FI_VERSION(1, 19), Abi::v1_3), 0);
  EXPECT_EQ(names(), "cloth silk ");
  EXPECT_EQ(ask(nullptr, nullptr, 0, nullptr, kApiVersion, Abi::v1_9), 0);
  EXPECT_EQ(names(), "cloth silk ");
}

// Fields that the version does not know may hold anything.
TEST_F(Getinfo, FieldsBeyondTheVersionAreNotRead) {
  InfoPtr hints = made_up_hints();
  hints->domain_attr->mr_cnt = 77;
  hints->domain_attr->max_err_data = SIZE_MAX;
  hints->domain_attr->caps = ~0ULL;
  hints->domain_attr->tclass = 0xdead;
  hints->tx_attr->tclass = 0xdead;
  hints->ep_attr->auth_key_size = 1 << 20;
  hints->ep_attr->auth_key = reinterpret_cast<uint8_t*>(16);
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get(), FI_VERSION(1, 4)), 0) << log_;
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get(), FI_VERSION(1, 17), Abi::v1_0), 0) << log_;
  hints->ep_attr->auth_key = nullptr;
  hints->ep_attr->auth_key_size = 0;
  hints->domain_attr->caps = 0;
  hints->domain_attr->max_err_data = 0;
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get(), FI_VERSION(1, 8)), 0) << log_;
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get(), FI_VERSION(1, 9)), -FI_ENODATA);
}

TEST_F(Getinfo, UnknownFlagsArePassedOver) {
  EXPECT_EQ(ask(nullptr, nullptr, 0xfULL << 58 | FI_NUMERICHOST | 1), 0);
  EXPECT_EQ(names(), "cloth silk ");
}

TEST_F(Getinfo, PluginLeavesNamesToTheOtherLibfabric) {
  catalogue_ = {{both_, 1}, true};
  setenv("FI_PROVIDER", "tcp", 1);
  const InfoPtr hints = made_up_hints();
  ASSERT_TRUE(assign_string(&hints->fabric_attr->prov_name, "weft_cloth;ofi_rxm"));
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), 0);
  EXPECT_EQ(names(), "- ");
  EXPECT_STREQ(infos_->fabric_attr->name, "cloth");
  hints->caps = FI_COLLECTIVE;
  ASSERT_TRUE(assign_string(&hints->fabric_attr->prov_name, "weft_cloth"));
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), -FI_ENODATA);
  EXPECT_EQ(log_, "");
  EXPECT_NE(at_end().find("caps: FI_COLLECTIVE"), std::string::npos);
  // Questions on behalf of layers, and those that may be meant for others, are refused in silence.
  EXPECT_EQ(ask(nullptr, nullptr, 1ULL << 60, hints.get()), -FI_ENODATA);
  EXPECT_EQ(log_, "");
  ASSERT_TRUE(assign_string(&hints->fabric_attr->prov_name, nullptr));
  EXPECT_EQ(ask(nullptr, nullptr, 0, hints.get()), -FI_ENODATA);
  EXPECT_EQ(log_ + at_end(), "");
}

TEST_F(Getinfo, FabricOfAnUnknownProvider) {
  fid_fabric* fabric = nullptr;
  fi_fabric_attr attr{};
  char name[] = "tcp";
  attr.prov_name = name;
  attr.api_version = kApiVersion;
  testing::internal::CaptureStderr();
  EXPECT_EQ(find_and_open_fabric(catalogue_, &attr, &fabric, nullptr), -FI_ENODEV);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no provider is called \"tcp\""), std::string::npos);
  attr.prov_name = nullptr;
  EXPECT_EQ(find_and_open_fabric(catalogue_, &attr, &fabric, nullptr), -FI_ENODEV);
  attr.prov_name = name;
  attr.api_version = FI_VERSION(2, 7);
  EXPECT_EQ(find_and_open_fabric(catalogue_, &attr, &fabric, nullptr), -FI_ENOSYS);
  EXPECT_EQ(find_and_open_fabric(catalogue_, nullptr, &fabric, nullptr), -FI_EINVAL);
  EXPECT_EQ(find_and_open_fabric(catalogue_, &attr, nullptr, nullptr), -FI_EINVAL);
}

}  // namespace
}  // namespace weft::fi
