#include "hybrid_trainer/nn/parameter.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/nn/linear.h"
#include "tests/support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

/// Records calls of ready(); the gradients are resident.
class ListeningSink final : public GradientSink {
 public:
  explicit ListeningSink(const std::vector<Parameter*>& parameters, const Stream& stream) {
    memory_.allocate(parameters, stream);
  }
  Tensor gradient(const Parameter& parameter) const override { return memory_.gradient(parameter); }
  void ready(const Parameter& parameter, const Stream&) override { told.push_back(&parameter); }
  std::vector<const Parameter*> told;

 private:
  ResidentGradients memory_;
};

class ParameterTest : public ::testing::Test {
 protected:
  /// Adds one contribution of ones.
  void contribute(Parameter& parameter) {
    GradientContribution to(parameter, stream_);
    if (!to.wanted()) return;
    const bool overwrite = to.next_mode() == kernels::GradientMode::kOverwrite;
    for (std::int64_t i = 0; i < parameter.elements(); ++i)
      to.gradient().data<float>()[i] = 1 + (overwrite ? 0 : to.gradient().data<float>()[i]);
  }
  const Stream stream_ = test_stream();
  Parameter weight_{"w", {2, 3}, Role::kMatrix, stream_};
  const std::vector<Parameter*> all_{&weight_};
  ListeningSink sink_{all_, stream_};
};

TEST_F(ParameterTest, FirstWriteOverwritesAndLaterOnesAdd) {
  for (int step = 0; step < 2; ++step) {
    begin_gradients(all_, sink_, 3);
    EXPECT_FALSE(weight_.gradient().defined());
    for (int i = 0; i < 3; ++i) contribute(weight_);
    EXPECT_EQ(values_of(weight_.gradient()), std::vector<double>(6, 3.0));
  }
}

TEST_F(ParameterTest, ReportsReadyOnceAfterLastContribution) {
  weight_.add_contributor();
  begin_gradients(all_, sink_, 2);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(sink_.told.empty()) << i;
    contribute(weight_);
  }
  EXPECT_EQ(sink_.told, (std::vector<const Parameter*>{&weight_}));
  end_gradients(all_, stream_);
  EXPECT_EQ(sink_.told.size(), 1u);
  EXPECT_THROW(contribute(weight_), Error);
}

TEST_F(ParameterTest, EndOfStepReportsContributedGradients) {
  begin_gradients(all_, sink_, 2);
  end_gradients(all_, stream_);
  EXPECT_TRUE(sink_.told.empty());
  EXPECT_FALSE(weight_.gradient().defined());
  contribute(weight_);
  end_gradients(all_, stream_);
  EXPECT_EQ(sink_.told.size(), 1u);
}

TEST_F(ParameterTest, FailedContributionIsNotCounted) {
  begin_gradients(all_, sink_, 1);
  try {
    const GradientContribution to(weight_, stream_);
    throw DataError("a bad token");
  } catch (const DataError&) {
  }
  EXPECT_FALSE(weight_.gradient().defined());
  EXPECT_TRUE(sink_.told.empty());
}

TEST_F(ParameterTest, GradientWithoutSinkThrowsNamingWeight) {
  try {
    contribute(weight_);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("gradient of w "), std::string::npos) << error.what();
  }
}

TEST_F(ParameterTest, ComputesInBf16OnlyWhenRequested) {
  EXPECT_THROW(weight_.acquire(DType::kBF16, stream_), Error);
  fill_zero(master_of(weight_), stream_);
  master_of(weight_).data<float>()[4] = 2.5f;
  weight_.compute_in(DType::kBF16, stream_);
  EXPECT_EQ(values_of(weight_.acquire(DType::kBF16, stream_))[4], 2.5);
  master_of(weight_).data<float>()[4] = 3.5f;
  EXPECT_EQ(values_of(weight_.acquire(DType::kBF16, stream_))[4], 2.5);
  weight_.refresh_compute_copy(stream_);
  EXPECT_EQ(values_of(weight_.acquire(DType::kBF16, stream_))[4], 3.5);
  weight_.compute_in(DType::kF32, stream_);
  EXPECT_EQ(weight_.compute_dtype(), DType::kF32);
  EXPECT_THROW(weight_.acquire(DType::kBF16, stream_), Error);
}

TEST(FrozenParameter, HasNoGradientAndDoesNotAffectOthers) {
  const Stream stream = test_stream();
  const Tensor x = normal_tensor({5, 4}, 1, stream), dy = normal_tensor({5, 3}, 2, stream);
  std::vector<Tensor> dx, dbias;
  for (const bool frozen : {false, true}) {
    Linear linear("l", 4, 3, stream);
    const auto visit_all = [&](const ParameterVisitor& visit) { linear.visit_parameters(visit); };
    randomize(visit_all, stream);
    if (frozen) linear.weight().freeze();
    const StepGradients step(visit_all, stream);
    PlainTape tape{Pass{}};
    linear.forward(x, tape, stream);
    dx.push_back(linear.backward(dy, tape, stream));
    linear.visit_parameters([&](Parameter& parameter) {
      if (parameter.role() == Role::kVector) dbias.push_back(clone(parameter.gradient(), stream));
    });
    EXPECT_EQ(linear.weight().gradient().defined(), !frozen);
  }
  EXPECT_TRUE(same_bits(dx[0], dx[1]));
  EXPECT_TRUE(same_bits(dbias[0], dbias[1]));
}

}  // namespace
}  // namespace hybrid_trainer::testing
