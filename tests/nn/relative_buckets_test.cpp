#include "hybrid_trainer/nn/positional_encoding.h"

#include <gtest/gtest.h>

#include <vector>

namespace hybrid_trainer::testing {
namespace {

/// The bucket from a distance on.
struct BucketRun {
  std::int64_t distance, bucket;
};

/// Compares with transformers' T5 buckets from −512 to 512, which change at these distances.
void expect_runs(const RelativeBuckets& buckets, const std::vector<BucketRun>& runs) {
  std::size_t run = 0;
  for (std::int64_t distance = -512; distance <= 512; ++distance) {
    if (run + 1 < runs.size() && runs[run + 1].distance == distance) ++run;
    ASSERT_EQ(buckets.of(distance), runs[run].bucket) << distance;
  }
  EXPECT_EQ(run + 1, runs.size());
}

TEST(RelativeBuckets, CausalBucketsMatchT5) {
  std::vector<BucketRun> runs{{-512, 31}, {-112, 30}, {-98, 29}, {-86, 28}, {-76, 27}, {-66, 26},
                              {-58, 25},  {-51, 24},  {-45, 23}, {-39, 22}, {-34, 21}, {-30, 20},
                              {-26, 19},  {-23, 18},  {-20, 17}, {-18, 16}};
  for (std::int64_t distance = -15; distance <= 0; ++distance)
    runs.push_back({distance, -distance});
  expect_runs({}, runs);
}

TEST(RelativeBuckets, BidirectionalBucketsMatchT5) {
  std::vector<BucketRun> runs{{-512, 15}, {-90, 14}, {-63, 13}, {-45, 12},
                              {-31, 11},  {-22, 10}, {-15, 9},  {-11, 8}};
  for (std::int64_t distance = -7; distance <= 0; ++distance) runs.push_back({distance, -distance});
  for (std::int64_t distance = 1; distance <= 8; ++distance)
    runs.push_back({distance, 16 + distance});
  for (const BucketRun& run :
       std::vector<BucketRun>{{12, 25}, {16, 26}, {23, 27}, {32, 28}, {46, 29}, {64, 30}, {91, 31}})
    runs.push_back(run);
  expect_runs({.bidirectional = true}, runs);
}

}  // namespace
}  // namespace hybrid_trainer::testing
