// Calls of the NCCL API by a single rank. They need no peer, so one device suffices.

#include "src/distributed/nccl_communicator.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/memory_pool.h"
#include "src/core/cuda_runtime.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/distributed/rank_suite.h"

namespace hybrid_trainer {
namespace {

using testing::counted;
using testing::floats_of;

/// An NCCL call that copies its input if the rank has no peers.
using Call = nccl::Result(const nccl::Functions&, ncclComm*, const Tensor& to, const Tensor& from,
                          const Stream&);

nccl::Result all_gather(const nccl::Functions& nccl, ncclComm* ranks, const Tensor& to,
                        const Tensor& from, const Stream& stream) {
  return nccl.ncclAllGather(from.raw(), to.raw(), from.bytes(), nccl::kUint8, ranks,
                            stream.native());
}

nccl::Result broadcast(const nccl::Functions& nccl, ncclComm* ranks, const Tensor& to,
                       const Tensor& from, const Stream& stream) {
  return nccl.ncclBroadcast(from.raw(), to.raw(), from.bytes(), nccl::kUint8, 0, ranks,
                            stream.native());
}

nccl::Result send_to_itself(const nccl::Functions& nccl, ncclComm* ranks, const Tensor& to,
                            const Tensor& from, const Stream& stream) {
  const nccl::Result sent =
      nccl.ncclSend(from.raw(), from.bytes(), nccl::kUint8, 0, ranks, stream.native());
  const nccl::Result received =
      nccl.ncclRecv(to.raw(), to.bytes(), nccl::kUint8, 0, ranks, stream.native());
  return received == nccl::kSuccess ? sent : received;
}

class SingleNcclRank : public ::testing::Test {
 protected:
  void SetUp() override {
    if (most_nccl_ranks() < 1) GTEST_SKIP() << kTooFewDevices;
    NcclLibrary library = NcclLibrary::open(tested_nccl());
    nccl::UniqueId id{};
    ASSERT_EQ(library.functions().ncclGetUniqueId(&id), nccl::kSuccess);
    stream_ = std::make_unique<Stream>(make_device_pool({DeviceType::kCuda}));
    cuda_runtime().use(0);
    rank_ = std::make_unique<NcclRank>(std::move(library), id, 0, 1, NcclLimits{});
  }

  /// Enqueues several calls as one group.
  void enqueue(Call& call, const std::vector<Tensor>& to, const std::vector<Tensor>& from) const {
    rank_->enqueue([&](const auto& nccl, ncclComm* ranks) {
      nccl::Result answer = nccl::kSuccess;  // of a group that may still be in progress
      for (std::size_t i = 0; i < from.size(); ++i) {
        const nccl::Result one = call(nccl, ranks, to[i], from[i], *stream_);
        if (one != nccl::kSuccess) answer = one;
      }
      return answer;
    });
  }
  void expect_copied(const Tensor& to, const Tensor& from) const {
    EXPECT_EQ(floats_of(to, *stream_), floats_of(from, *stream_));
  }

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<NcclRank> rank_;
};

TEST_F(SingleNcclRank, RunsEveryCallAndEndsCleanly) {
  for (Call* const call : {all_gather, broadcast, send_to_itself}) {
    for (const std::int64_t elements : {1, 7, 1001, 300'000}) {
      const Tensor from = counted(elements, 1, *stream_), to = counted(elements, -9, *stream_);
      enqueue(*call, {to}, {from});
      expect_copied(to, from);
    }
  }
  EXPECT_TRUE(rank_->end());
}

TEST_F(SingleNcclRank, RunsManyCallsAsOneGroup) {
  for (Call* const call : {broadcast, send_to_itself}) {
    std::vector<Tensor> from, to;
    for (std::int64_t i = 0; i < 5; ++i) {
      from.push_back(counted(100 * i + 1, static_cast<float>(i), *stream_));
      to.push_back(counted(100 * i + 1, -9, *stream_));
    }
    enqueue(*call, to, from);
    for (std::size_t i = 0; i < from.size(); ++i) expect_copied(to[i], from[i]);
  }
  EXPECT_TRUE(rank_->end());
}

TEST_F(SingleNcclRank, EndWaitsForEnqueuedCalls) {
  const Tensor from = counted(1001, 1, *stream_), to = counted(1001, -9, *stream_);
  for (int i = 0; i < 50; ++i) enqueue(all_gather, {to}, {from});
  EXPECT_TRUE(rank_->end());
  expect_copied(to, from);
  EXPECT_THROW(enqueue(all_gather, {to}, {from}), RankLost);
  EXPECT_FALSE(rank_->end()) << "a second time";
}

TEST_F(SingleNcclRank, AbortReturnsAndStreamContinues) {
  const Tensor from = counted(1001, 1, *stream_), to = counted(1001, -9, *stream_);
  enqueue(all_gather, {to}, {from});
  EXPECT_TRUE(rank_->abort("the test ends it"));
  stream_->synchronize();
  EXPECT_EQ(testing::message_of<RankLost>([&] { enqueue(all_gather, {to}, {from}); }),
            "the test ends it");
  EXPECT_FALSE(rank_->end());
}

}  // namespace
}  // namespace hybrid_trainer
