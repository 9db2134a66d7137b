#include "hybrid_trainer/nn/text_head.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "tests/support/gradient_check.h"
#include "tests/support/texts_batch.h"

namespace hybrid_trainer::testing {
namespace {

using LossKind = TextLoss::Kind;
using kernels::Pooling;

constexpr std::int64_t kHiddenWidth = 8;

/// A head for a batch, and random hidden states.
class HeadForBatch {
 public:
  HeadForBatch(const TextLoss& loss, TextHead::Spec spec, const Stream& stream)
      : stream_(stream), batch(texts_batch(loss.kind, 30, stream)) {
    spec.width = kHiddenWidth;
    spec.outputs = outputs_for(loss.kind);
    head = std::make_unique<TextHead>(spec, stream);
    head->set_loss(loss);
    randomize([&](const ParameterVisitor& visit) { head->visit_parameters(visit); }, stream);
    hidden = normal_tensor({batch.tokens(), kHiddenWidth}, 7, stream);
  }
  double loss(ActivationTape& tape, const Tensor& x, float scale = 1) const {
    return kernels::wait_for_value(head->loss(x, batch, scale, tape, stream_), stream_);
  }
  Tensor gradient(const Tensor& x, float scale = 1) const {
    const StepGradients gradients(
        [&](const ParameterVisitor& visit) { head->visit_parameters(visit); }, stream_);
    PlainTape tape{Pass{}};
    loss(tape, x, scale);
    return head->backward(batch, x.dtype(), tape, stream_);
  }

 private:
  const Stream& stream_;

 public:
  const Batch batch;
  std::unique_ptr<TextHead> head;
  Tensor hidden;
};

class TextHeadTest : public ::testing::Test {
 protected:
  void expect_gradients(const HeadForBatch& made) const {
    Differentiable f;
    f.x = made.hidden;
    f.forward = [&](ActivationTape& tape) { return made.loss(tape, made.hidden); };
    f.backward = [&](ActivationTape& tape) {
      return made.head->backward(made.batch, DType::kF32, tape, stream_);
    };
    f.visit_parameters = [&](const ParameterVisitor& visit) { made.head->visit_parameters(visit); };
    expect_gradients_match(f, stream_, {.step = 2e-3, .relative = 2e-3});
  }
  const Stream stream_ = test_stream();
};

HeadTransform::Spec transform(HeadTransform::Activation activation, bool has_norm = false) {
  HeadTransform::Spec spec{
      .width = kHiddenWidth, .dense = "dense", .activation = activation, .norm = "norm"};
  if (has_norm) spec.norm_kind = NormSpec{};
  return spec;
}

TEST_F(TextHeadTest, GradientsOfEachLossMatchFiniteDifferences) {
  for (const TextLoss& loss : text_losses()) {
    for (const Pooling pooling : {Pooling::kFirst, Pooling::kMean, Pooling::kLast}) {
      SCOPED_TRACE(concat(name_of(loss), ", pooling ", static_cast<int>(pooling)));
      const bool has_bias =
          loss.kind != LossKind::kReward;  // no difference of scores depends on it
      const HeadForBatch made(loss, {.pooling = pooling, .head_bias = has_bias}, stream_);
      expect_gradients(made);
    }
  }
}

TEST_F(TextHeadTest, GradientsOfEachTransformMatchFiniteDifferences) {
  using Activation = HeadTransform::Activation;
  for (const Activation activation : {Activation::kTanh, Activation::kGelu}) {
    for (const bool has_norm : {false, true}) {
      for (const LossKind kind : {LossKind::kClass, LossKind::kRegression}) {
        SCOPED_TRACE(concat(static_cast<int>(activation), has_norm, static_cast<int>(kind)));
        const HeadForBatch made({.kind = kind}, {.transform = transform(activation, has_norm)},
                                stream_);
        expect_gradients(made);
      }
    }
  }
}

TEST_F(TextHeadTest, GradientsOfDenseLayersMatchFiniteDifferences) {
  using Activation = HeadTransform::Activation;
  for (const Activation activation : {Activation::kNone, Activation::kTanh, Activation::kGelu}) {
    for (const LossKind kind : {LossKind::kContrastive, LossKind::kCosine}) {
      SCOPED_TRACE(concat(static_cast<int>(activation), static_cast<int>(kind)));
      const HeadForBatch made({.kind = kind, .scale = 5},
                              {.dense = {{.width = kHiddenWidth,
                                          .outputs = 12,
                                          .dense = {"dense_0", "2_Dense/linear"},
                                          .bias = true,
                                          .activation = activation},
                                         {.width = 12,
                                          .outputs = 6,
                                          .dense = {"dense_1", "3_Dense/linear"},
                                          .bias = false,
                                          .activation = activation}}},
                              stream_);
      EXPECT_EQ(made.head->outputs(), 6);
      EXPECT_EQ(made.head->parts(), (std::vector<std::string>{"dense_0", "dense_1"}));
      std::vector<std::string> in_files;
      made.head->visit_parameters([&](const Parameter& parameter) {
        EXPECT_TRUE(made.head->owns(parameter));
        in_files.push_back(parameter.in_files().front().name);
      });
      EXPECT_EQ(in_files, (std::vector<std::string>{"2_Dense/linear.weight", "2_Dense/linear.bias",
                                                    "3_Dense/linear.weight"}));
      expect_gradients(made);
    }
  }
}

/// A model's transform belongs to its class head.
TEST_F(TextHeadTest, VectorsPassNoTransform) {
  const HeadForBatch made({.kind = LossKind::kContrastive},
                          {.transform = transform(HeadTransform::Activation::kTanh)}, stream_);
  EXPECT_EQ(made.head->outputs(), kHiddenWidth);
  made.head->visit_parameters([](Parameter& parameter) { ADD_FAILURE() << parameter.name(); });
  EXPECT_TRUE(made.head->parts().empty());
}

TEST_F(TextHeadTest, IgnoresPaddingAndGivesItNoGradient) {
  for (const TextLoss& loss : text_losses()) {
    SCOPED_TRACE(name_of(loss));
    const HeadForBatch made(loss, {.transform = transform(HeadTransform::Activation::kTanh)},
                            stream_);
    const auto is_padding = [&](std::int64_t row) {
      return made.batch.at("is_token").data<std::int32_t>()[row] == 0;
    };
    const Tensor changed = clone(made.hidden, stream_);
    for (std::int64_t row = 0; row < made.batch.tokens(); ++row)
      if (is_padding(row))
        std::fill_n(changed.data<float>() + row * kHiddenWidth, kHiddenWidth, 1e4f);
    ForwardOnlyTape tape{Pass{}};
    EXPECT_EQ(made.loss(tape, changed), made.loss(tape, made.hidden));
    const Tensor gradient = made.gradient(changed);
    EXPECT_TRUE(same_bits(gradient, made.gradient(made.hidden)));
    for (std::int64_t row = 0; row < made.batch.tokens(); ++row)
      for (std::int64_t c = 0; is_padding(row) && c < kHiddenWidth; ++c)
        EXPECT_EQ(gradient.data<float>()[row * kHiddenWidth + c], 0) << row;
  }
}

TEST_F(TextHeadTest, SequenceWithoutTextsAddsNothing) {
  for (const LossKind kind :
       {LossKind::kClass, LossKind::kContrastive, LossKind::kCosent, LossKind::kReward}) {
    const HeadForBatch made({.kind = kind}, {}, stream_);
    ForwardOnlyTape tape{Pass{}};
    const Batch half = made.batch.examples(0, 1);
    const double wanted = kernels::wait_for_value(
        made.head->loss(made.hidden.rows(0, 40), half, 1, tape, stream_), stream_);
    for (const char* name : {"ends", "roles", "classes"})
      if (const Tensor* const part = made.batch.find(name))
        std::fill_n(part->data<std::int32_t>() + 5, 5, std::string_view(name) == "ends" ? 0 : -1);
    const double share = kind == LossKind::kCosent ? 1 : 2;  // half's share of the examples
    EXPECT_NEAR(made.loss(tape, made.hidden) * share, wanted, 1e-6);
  }
}

TEST_F(TextHeadTest, Bf16StatesMatchTheirValuesInF32) {
  for (const TextLoss& loss : text_losses()) {
    SCOPED_TRACE(name_of(loss));
    const HeadForBatch made(loss, {.transform = transform(HeadTransform::Activation::kTanh)},
                            stream_);
    const Tensor narrow =
        Tensor::empty(made.hidden.shape(), DType::kBF16, MemoryKind::kWorkspace, stream_);
    kernels::cast(narrow, made.hidden, stream_);
    const Tensor wide = clone(made.hidden, stream_);
    kernels::cast(wide, narrow, stream_);
    ForwardOnlyTape tape{Pass{}};
    EXPECT_EQ(made.loss(tape, narrow), made.loss(tape, wide));
    const Tensor gradient = made.gradient(narrow);
    EXPECT_EQ(gradient.dtype(), DType::kBF16);
    EXPECT_LT(relative_error(gradient, made.gradient(wide)), 4e-3);
  }
}

TEST_F(TextHeadTest, GradientScalesWithItsFactor) {
  for (const TextLoss& loss : text_losses()) {
    SCOPED_TRACE(name_of(loss));
    const HeadForBatch made(loss, {}, stream_);
    std::vector<double> doubled = values_of(made.gradient(made.hidden));
    for (double& value : doubled) value *= 1024;
    EXPECT_LT(relative_error(values_of(made.gradient(made.hidden, 1024)), doubled), 1e-6);
  }
}

TEST_F(TextHeadTest, NamesItsParameters) {
  const HeadForBatch made({.kind = LossKind::kClass},
                          {.transform = transform(HeadTransform::Activation::kTanh, true),
                           .head = "classifier",
                           .head_bias = true},
                          stream_);
  std::vector<std::string> last, all;
  made.head->visit_parameters([&](const Parameter& parameter) {
    EXPECT_TRUE(made.head->owns(parameter));
    all.push_back(parameter.name());
    if (made.head->is_last(parameter)) last.push_back(parameter.name());
  });
  EXPECT_EQ(all.size(), 6u);
  EXPECT_EQ(last, (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
  EXPECT_EQ(made.head->parts(), (std::vector<std::string>{"dense", "classifier"}));
  Parameter other("classifiers.weight", {2, 2}, Role::kMatrix, stream_);
  EXPECT_FALSE(made.head->owns(other));
}

}  // namespace
}  // namespace hybrid_trainer::testing
