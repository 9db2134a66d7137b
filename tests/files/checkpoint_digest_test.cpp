#include "src/files/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

class DigestOfCheckpoint : public ::testing::Test {
 protected:
  Tensor tensor(const Shape& shape, float first) {
    const Tensor result = Tensor::empty(shape, DType::kF32, MemoryKind::kParameters, stream_);
    for (std::int64_t i = 0; i < result.elements(); ++i)
      result.data<float>()[i] = first + static_cast<float>(i);
    return result;
  }
  CheckpointInfo saved(const std::map<std::string, Tensor>& tensors) {
    State state;
    state.integers["step"] = ++step_;
    for (const auto& [name, one] : tensors) state.tensors[name] = one;
    return read_checkpoint_info(save_checkpoint(root_, step_, {state}, {100, "hash"}).path);
  }
  std::map<std::string, Tensor> tensors() {
    return {{"model.a", tensor({2, 3}, 1)}, {"optimizer.a.m", tensor({6}, 1)}};
  }
  TemporaryFolder folder_;
  std::string root_ = folder_ / "checkpoints";
  Stream stream_{MemoryPool::create("test")};
  std::int64_t step_ = 0;
};

TEST_F(DigestOfCheckpoint, DependsOnlyOnTensors) {
  const CheckpointDigest first = digest_of(saved(tensors())), again = digest_of(saved(tensors()));
  ASSERT_EQ(first.tensors.size(), 2u);
  EXPECT_EQ(first.tensors[0].name, "model.a");
  EXPECT_EQ(first.tensors[0].checksum, first.tensors[1].checksum);  // equal elements
  EXPECT_EQ(first.all.size(), 32u);
  EXPECT_EQ(again.all, first.all);
}

TEST_F(DigestOfCheckpoint, ChangesWithBitShapeOrName) {
  const std::string before = digest_of(saved(tensors())).all;
  auto changed = tensors();
  changed["model.a"].data<float>()[4] = std::nextafter(5.0f, 6.0f);
  const CheckpointDigest of_bit = digest_of(saved(changed));
  EXPECT_NE(of_bit.all, before);
  EXPECT_NE(of_bit.tensors[0].checksum, of_bit.tensors[1].checksum);
  changed = tensors();
  changed["model.a"] = changed["model.a"].view({3, 2});
  EXPECT_NE(digest_of(saved(changed)).all, before);
  changed = tensors();
  changed["model.b"] = changed["model.a"];
  changed.erase("model.a");
  EXPECT_NE(digest_of(saved(changed)).all, before);
}

TEST_F(DigestOfCheckpoint, RejectsDamagedCheckpoint) {
  const CheckpointInfo info = saved(tensors());
  fs::resize_file(fs::path(info.path) / "model.safetensors", 40);
  EXPECT_THROW(digest_of(info), DataError);
}

}  // namespace
}  // namespace hybrid_trainer
