// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is closed while its neighbours stay open: queues and contexts of a scalable endpoint.
#include "fixture.hpp"

namespace weft::conformance {
namespace {

// fi_endpoint(3): a transmit context and its queue go; the others are driven as before.
TEST(Closing, queue_of_a_closed_context__fi_endpoint_3) {
  Options options{.caps = FI_TAGGED | FI_MSG, .endpoints = 0, .edit_hints = [](fi_info* hints) {
                    hints->ep_attr->tx_ctx_cnt = 2;
                    hints->ep_attr->rx_ctx_cnt = 1;
                  }};
  WEFT_WORLD(w, options);
  if (w.info()->domain_attr->max_ep_tx_ctx < 2) GTEST_SKIP() << "one context an endpoint";
  fi_av_attr av_attr{};
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  Handle<fid_av> av;
  Handle<fid_ep> sep;
  WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, av.out(), nullptr));
  WEFT_ASSERT_OK(fi_scalable_ep(w.domain(), w.info(), sep.out(), nullptr));
  WEFT_ASSERT_OK(fi_scalable_ep_bind(sep.get(), av.fid(), 0));
  WEFT_ASSERT_OK(fi_enable(sep.get()));
  {
    Handle<fid_cq> kept, gone;
    Handle<fid_ep> tx, rx, short_lived;
    WEFT_ASSERT_OK(fi_cq_open(w.domain(), &cq_attr, kept.out(), nullptr));
    WEFT_ASSERT_OK(fi_cq_open(w.domain(), &cq_attr, gone.out(), nullptr));
    WEFT_ASSERT_OK(fi_tx_context(sep.get(), 0, nullptr, tx.out(), nullptr));
    WEFT_ASSERT_OK(fi_tx_context(sep.get(), 1, nullptr, short_lived.out(), nullptr));
    WEFT_ASSERT_OK(fi_rx_context(sep.get(), 0, nullptr, rx.out(), nullptr));
    if (!manual_only()) {
      fid_ep* again = nullptr;
      EXPECT_EQ(fi_rx_context(sep.get(), 0, nullptr, &again, nullptr), -FI_EBUSY) << "it is open";
    }
    WEFT_ASSERT_OK(fi_ep_bind(tx.get(), kept.fid(), FI_TRANSMIT));
    WEFT_ASSERT_OK(fi_ep_bind(rx.get(), kept.fid(), FI_RECV));
    WEFT_ASSERT_OK(fi_ep_bind(short_lived.get(), gone.fid(), FI_TRANSMIT));
    WEFT_ASSERT_OK(fi_enable(tx.get()));
    WEFT_ASSERT_OK(fi_enable(rx.get()));
    WEFT_ASSERT_OK(fi_enable(short_lived.get()));
    WEFT_ASSERT_OK(short_lived.close());
    WEFT_ASSERT_OK(gone.close());

    uint8_t name[256];
    size_t len = sizeof name;
    fi_addr_t self = FI_ADDR_NOTAVAIL;
    WEFT_ASSERT_OK(fi_getname(sep.fid(), name, &len));
    ASSERT_EQ(fi_av_insert(av.get(), name, 1, &self, 0, nullptr), 1);
    uint64_t in = 0;
    const uint64_t out = 42;
    WEFT_ASSERT_OK(fi_trecv(rx.get(), &in, sizeof in, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr));
    WEFT_ASSERT_OK(fi_tinject(tx.get(), &out, sizeof out, self, 1));
    fi_cq_tagged_entry entry;
    ssize_t got = -FI_EAGAIN;
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
         got == -FI_EAGAIN && std::chrono::steady_clock::now() < end;)
      got = fi_cq_read(kept.get(), &entry, 1);
    ASSERT_EQ(got, 1);
    EXPECT_EQ(in, out);
  }
}

}  // namespace
}  // namespace weft::conformance
