// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When a path counts as one that loses packets.
#include "proto/reliable/loss_history.hpp"

#include <gtest/gtest.h>

namespace weft::proto::reliable {
namespace {

void acknowledge(LossHistory& history, unsigned times) {
  for (unsigned i = 0; i < times; ++i) history.on_ack();
}

TEST(ReliableLossHistory, ANewPathIsGoodAfterAThousandAcknowledgements) {
  LossHistory history;
  EXPECT_FALSE(history.is_lossy());
  acknowledge(history, LossHistory::loss_free_min - 1);
  EXPECT_FALSE(history.is_good());
  acknowledge(history, 1);
  EXPECT_TRUE(history.is_good());
}

TEST(ReliableLossHistory, APathThatLostSomethingNeedsTenTimesAsMany) {
  LossHistory history;
  acknowledge(history, LossHistory::loss_free_min);
  history.on_loss(0);
  EXPECT_TRUE(history.is_lossy());
  acknowledge(history, LossHistory::loss_free_after_loss - 1);
  EXPECT_TRUE(history.is_lossy());
  EXPECT_FALSE(history.is_good());
  history.on_loss(1);
  acknowledge(history, LossHistory::loss_free_after_loss - 1);
  EXPECT_TRUE(history.is_lossy());
  acknowledge(history, 1);
  EXPECT_FALSE(history.is_lossy());
  EXPECT_TRUE(history.is_good());
}

// Two packets were taken for lost, at 5 and at 6 in all, and both had arrived.
TEST(ReliableLossHistory, LossesThatWereNoneAreForgotten) {
  LossHistory history;
  acknowledge(history, LossHistory::loss_free_min);
  history.on_loss(5);
  history.on_loss(6);
  history.on_correction(6);
  EXPECT_TRUE(history.is_lossy());
  history.on_correction(5);
  EXPECT_FALSE(history.is_lossy());
  EXPECT_TRUE(history.is_good());
}

TEST(ReliableLossHistory, ACorrectionKeepsWhatCameAfterTheLoss) {
  LossHistory history;
  acknowledge(history, LossHistory::loss_free_min / 2);
  history.on_loss(0);
  acknowledge(history, LossHistory::loss_free_min);
  history.on_correction(0);
  EXPECT_TRUE(history.is_good());
}

}  // namespace
}  // namespace weft::proto::reliable
