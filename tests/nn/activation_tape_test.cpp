#include "hybrid_trainer/nn/activation_tape.h"

#include <gtest/gtest.h>

#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

TEST(PlainTape, ReturnsTensorsInReverseOrder) {
  const Stream stream = test_stream();
  PlainTape tape{Pass{}};
  EXPECT_TRUE(tape.keeps());
  const Tensor first = normal_tensor({3}, 1, stream), second = normal_tensor({4}, 2, stream);
  tape.save({ActivationRole::kNormInput, first}, stream);
  tape.save({ActivationRole::kStatistics, second}, stream);
  EXPECT_EQ(tape.take(stream).raw(), second.raw());
  EXPECT_EQ(tape.take(stream).raw(), first.raw());
  EXPECT_TRUE(tape.empty());
  EXPECT_THROW(tape.take(stream), Error);
}

/// Records the tensors that it is asked to prefetch.
class NotingTape final : public PlainTape {
 public:
  using PlainTape::PlainTape;
  std::vector<const void*> told;

 private:
  void ahead(const Tensor& kept, const Stream&) override { told.push_back(kept.raw()); }
};

class Copying final : public Rebuilder {
  Tensor rebuild(const Tensor& source, const Pass&, const Stream& stream) override {
    return clone(source, stream);
  }
};

TEST(PlainTape, AnnouncesNextTensorAlsoWhenRebuilding) {
  const Stream stream = test_stream();
  Copying copying;
  NotingTape tape(Pass{}, Rebuild::kActivated);
  const Tensor between = normal_tensor({4}, 1, stream), source = normal_tensor({4}, 2, stream),
               rebuilt = clone(source, stream), last = normal_tensor({4}, 3, stream);
  tape.save({ActivationRole::kPreActivation, source}, stream);
  tape.save({ActivationRole::kNormInput, between}, stream);
  tape.declare_rebuildable(rebuilt, Rebuild::kActivated, source, copying);
  tape.save({ActivationRole::kActivated, rebuilt}, stream);
  tape.save({ActivationRole::kStatistics, last}, stream);
  EXPECT_EQ(tape.take(stream).raw(), last.raw());
  EXPECT_EQ(tape.told, std::vector<const void*>{source.raw()});
  EXPECT_TRUE(same_bits(tape.take(stream), rebuilt));
  EXPECT_EQ(tape.told.back(), between.raw());
  EXPECT_EQ(tape.take(stream).raw(), between.raw());
  EXPECT_EQ(tape.told.size(), 2u) << "the source is already loaded";
  EXPECT_EQ(tape.take(stream).raw(), source.raw());
}

TEST(ForwardOnlyTape, KeepsNothing) {
  const Stream stream = test_stream();
  ForwardOnlyTape tape{Pass{.training = false, .dtype = DType::kBF16}};
  EXPECT_FALSE(tape.keeps());
  EXPECT_EQ(tape.pass().dtype, DType::kBF16);
  tape.save({ActivationRole::kNormInput, normal_tensor({100}, 1, stream)}, stream);
  EXPECT_EQ(stream.pool()->use().live_total, 0u);
  EXPECT_THROW(tape.take(stream), Error);
}

}  // namespace
}  // namespace hybrid_trainer::testing
