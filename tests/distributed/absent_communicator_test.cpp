#include "src/distributed/single_communicator.h"

#include <gtest/gtest.h>

#include "src/distributed/communicator.h"

namespace hybrid_trainer {
namespace {

/// Bytes that rank 1 of 3 would have sent and received in one call.
struct Traffic {
  std::uint64_t sent, received;
  bool operator==(const Traffic&) const = default;
};
void PrintTo(const Traffic& traffic, std::ostream* out) {
  *out << traffic.sent << " sent, " << traffic.received << " received";
}

class AbsentCommunicatorTest : public ::testing::Test {
 protected:
  Tensor tensor(std::int64_t elements) const {
    return Tensor::zeros({elements}, DType::kF32, MemoryKind::kGradients, stream_);
  }
  template <class Call>
  Traffic traffic_of(const Call& call) {
    const CommunicationUse before = ranks_.use();
    const std::uint64_t link_before = ranks_.link_bytes();
    call(ranks_);
    const CommunicationUse after = ranks_.use();
    EXPECT_EQ(after.calls, before.calls + 1);
    const Traffic traffic{after.bytes_sent - before.bytes_sent,
                          after.bytes_received - before.bytes_received};
    EXPECT_EQ(ranks_.link_bytes() - link_before, std::max(traffic.sent, traffic.received));
    return traffic;
  }
  const Stream stream_{MemoryPool::create("device")};
  SimulatedCommunicator ranks_{1, 3};
};

TEST_F(AbsentCommunicatorTest, CountsBytesSentAndReceived) {
  const Tensor whole = tensor(12), part = tensor(4);
  EXPECT_EQ(traffic_of([&](auto& r) { r.all_gather(whole, part, stream_); }), (Traffic{32, 32}));
  EXPECT_EQ(traffic_of([&](auto& r) {
              r.gather_parts(whole, {5, 4, 3}, stream_);
            }),
            (Traffic{32, 32}));
  EXPECT_EQ(traffic_of([&](auto& r) {
              r.gather_parts(whole, {1, 10, 1}, stream_);
            }),
            (Traffic{80, 8}));
  EXPECT_EQ(traffic_of([&](auto& r) {
              r.all_to_all(whole, {1, 2, 9}, whole, {6, 4, 2}, stream_);
            }),
            (Traffic{32, 40}));
  EXPECT_EQ(traffic_of([&](auto& r) { r.barrier(); }), (Traffic{0, 0}));
}

TEST_F(AbsentCommunicatorTest, HostGatherRepeatsOwnText) {
  std::vector<std::string> all;
  EXPECT_EQ(traffic_of([&](auto& r) { all = r.host_gather("seven b"); }), (Traffic{14, 14}));
  EXPECT_EQ(all, (std::vector<std::string>(3, "seven b")));
}

TEST_F(AbsentCommunicatorTest, ChangesNoTensorAndReportsRank) {
  const Tensor values = tensor(3);
  std::fill_n(values.data<float>(), 3, 7.0f);
  ranks_.all_gather(values, values.rows(1, 2), stream_);
  EXPECT_EQ(values.data<float>()[2], 7);
  EXPECT_EQ(ranks_.rank(), 1);
  EXPECT_EQ(ranks_.size(), 3);
  EXPECT_THROW(ranks_.abort("it is over"), RankLost);
}

}  // namespace
}  // namespace hybrid_trainer
