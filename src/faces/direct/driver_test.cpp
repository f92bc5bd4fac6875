// Which way a directly linked program's completion queues drive endpoints.
#include "faces/direct/driver.hpp"

#include <gtest/gtest.h>

#include <type_traits>

namespace weft::direct {
namespace {

struct Link;
struct OneType {
  using Link = direct::Link;
};
struct TwoTypes {
  using Link = direct::Link;
  using Connection = int;
};

struct Endpoint final : core::Progressor {
  int calls = 0;
  void progress() noexcept override { ++calls; }
  int wait_fd() noexcept override { return -1; }
  bool arm() noexcept override { return false; }
  void disarm() noexcept override {}
};

// An endpoint of FI_EP_MSG is no engine over the provider's link for RDM.
TEST(DirectDriver, EnginesOfTwoTypesAreAsked) {
  EXPECT_TRUE((std::is_base_of_v<SoleEngine<Link>, DriverOf<OneType>>));
  EXPECT_FALSE((std::is_base_of_v<SoleEngine<Link>, DriverOf<TwoTypes>>));
  Endpoint endpoint;
  core::ProgressorList list;
  list.add(endpoint);
  DriverOf<TwoTypes>::progress(list);
  EXPECT_EQ(endpoint.calls, 1);
  list.remove(endpoint);
}

}  // namespace
}  // namespace weft::direct
