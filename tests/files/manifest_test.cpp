#include <gtest/gtest.h>

#include <cstring>

#include "src/files/checkpoint_files.h"
#include "src/files/safetensors.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

/// A checkpoint of two ranks whose files exist. Each changed manifest gets a valid checksum.
class RanksManifest : public ::testing::Test {
 protected:
  void SetUp() override {
    info_.path = folder_.path();
    info_.step = 3;
    for (const int rank : {0, 1}) {
      const Tensor part =
          Tensor::zeros({rank == 0 ? 4 : 6}, DType::kF32, MemoryKind::kData, stream_);
      const std::string name = rank_file_name(rank);
      info_.files[name] = write_safetensors(folder_ / name, {{"model.w", part}});
      tensor().ranges.push_back({name, rank == 0 ? 0 : 4, rank == 0 ? 4 : 10});
    }
    tensor().shape = {5, 2};
  }
  StoredTensor& tensor() { return info_.tensors["model.w"]; }
  CheckpointInfo read() {
    write_text(folder_ / kManifestName, manifest_text(info_));
    CheckpointInfo got = read_checkpoint_info(folder_.path());
    return got;
  }
  void expect_refused(const std::string& why) {
    EXPECT_TRUE(contains(message_of<DataError>([&] { read(); }), why));
  }
  void expect_damaged(const std::string& why) {
    EXPECT_TRUE(contains(checkpoint_damage(read()), why));
  }
  TemporaryFolder folder_;
  Stream stream_{MemoryPool::create("test")};
  CheckpointInfo info_;
};

TEST_F(RanksManifest, RoundTripsUnchanged) {
  const CheckpointInfo got = read();
  EXPECT_EQ(manifest_text(got), manifest_text(info_));
  EXPECT_EQ(checkpoint_damage(got), "");
  EXPECT_EQ(got.tensors.at("model.w").shape, (Shape{5, 2}));
  EXPECT_EQ(got.tensors.at("model.w").ranges[1].last, 10);
}

TEST_F(RanksManifest, RejectsOverlappingRanges) {
  tensor().ranges[1].first = 3;
  expect_refused("gaps and overlaps are not allowed");
}

TEST_F(RanksManifest, RejectsRangesWithHole) {
  tensor().ranges[1].first = 5;
  expect_refused("elements 5 to 10 in rank-00001.safetensors come after element 4");
}

TEST_F(RanksManifest, RejectsRangesThatDoNotCoverTensor) {
  tensor().ranges[1].last = 11;
  expect_refused("its ranges end at element 11");
  tensor().ranges[1].last = 9;
  expect_refused("its ranges end at element 9");
  tensor().ranges[0].first = -1;
  expect_refused("gaps and overlaps are not allowed");
  tensor().ranges[0].first = 0;
  tensor().ranges[1].last = 4;
  expect_refused("gaps and overlaps are not allowed");
}

TEST_F(RanksManifest, RejectsTensorWithoutRanges) {
  tensor().ranges.clear();
  expect_refused("its ranges end at element 0");
}

TEST_F(RanksManifest, RejectsFilesThatAreNotRankFiles) {
  for (const char* const name :
       {"../rank-00001.safetensors", "/rank-00001.safetensors", "rank-1.safetensors",
        "rank-00001.safetensors/", "rank-00001.bin", "rank--0001.safetensors"}) {
    CheckpointInfo before = info_;
    info_.files[name] = info_.files[rank_file_name(1)];
    expect_refused("names an unexpected file");
    info_ = before;
    tensor().ranges[1].file = name;
    expect_refused("the manifest does not list the file");
    info_ = before;
  }
  tensor().ranges[1].file = rank_file_name(2);  // not in the manifest's list
  expect_refused("the manifest does not list the file \"rank-00002.safetensors\"");
}

TEST_F(RanksManifest, RejectsInvalidShapes) {
  const std::string text = manifest_text(info_);
  const auto expect_shape_refused = [&](const std::string& sizes) {
    std::string changed = text;
    const std::string shape = "\"shape\": [5, 2]";
    const std::size_t at = changed.find(shape);
    ASSERT_NE(at, changed.npos) << text;
    changed.replace(at, shape.size(), "\"shape\": [" + sizes + "]");
    write_text(folder_ / kManifestName, changed);
    EXPECT_THROW(read_checkpoint_info(folder_.path()), DataError) << sizes;
  };
  for (const char* const sizes : {"", "1, 1, 1, 5, 2", "-5, -2", "4611686018427387904, 4",
                                  "5, \"2\"", "10", "2, 5"})  // the last ones break its checksum
    expect_shape_refused(sizes);
}

TEST_F(RanksManifest, ReportsTypeOrLengthMismatch) {
  tensor().dtype = DType::kI32;
  expect_damaged("tensor \"model.w\" is F32 (4), but the manifest declares I32 (4)");
  tensor().dtype = DType::kF32;
  tensor().ranges[0].last = tensor().ranges[1].first = 3;
  expect_damaged("tensor \"model.w\" is F32 (4), but the manifest declares F32 (3)");
}

TEST_F(RanksManifest, ReportsMissingAndExtraTensors) {
  info_.tensors["model.v"] = {DType::kF32, {2}, {{rank_file_name(0), 0, 2}}};
  expect_damaged("has no tensor \"model.v\"");
  info_.tensors = {};
  expect_damaged("has 1 tensors, but the manifest declares 0");
}

TEST_F(RanksManifest, RejectsOtherFormatVersion) {
  std::string text = manifest_text(info_);
  const std::string version = "\"format_version\": 2";
  ASSERT_NE(text.find(version), text.npos);
  text.replace(text.find(version), version.size(), "\"format_version\": 3");
  write_text(folder_ / kManifestName, text);
  EXPECT_TRUE(contains(message_of<DataError>([&] { read_checkpoint_info(folder_.path()); }),
                       "its format version is 3, want 1 or 2"));
}

/// A declared length allocates no memory before that many bytes were read.
TEST(StateBytes, RejectsInflatedLengthsAndTruncation) {
  State state;
  state.integers = {{"step", 7}};
  state.series = {{"losses", {1, 2, 3}}};
  state.texts = {{"config", "{}"}};
  const std::string bytes = state_bytes(state);
  State back;
  read_state_bytes(bytes, back);
  EXPECT_EQ(back.series, state.series);
  int refused = 0;
  for (std::size_t at = 1; at + 8 <= bytes.size(); ++at) {
    for (const std::uint64_t length : {std::uint64_t{1} << 34, ~std::uint64_t{0}}) {
      std::string other = bytes;
      std::memcpy(&other[at], &length, sizeof length);
      try {
        State got;
        read_state_bytes(other, got);
      } catch (const DataError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 50);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    State got;
    EXPECT_THROW(read_state_bytes(bytes.substr(0, cut), got), DataError) << cut;
  }
}

}  // namespace
}  // namespace hybrid_trainer
