#include "hybrid_trainer/nn/cross_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/support/gradient_check.h"
#include "tests/support/layers.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kCrossBatch = 2, kCrossTime = 5, kCrossWidth = 12, kSource = 15,
                       kSourceWidth = 8;

Tensor integers(const std::vector<std::int32_t>& values, const Shape& shape, const Stream& stream) {
  const Tensor tensor = Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream);
  std::copy(values.begin(), values.end(), tensor.data<std::int32_t>());
  return tensor;
}

/// Like Whisper's, whose keys have no bias.
CrossAttention::Spec spec_of(std::shared_ptr<EncoderOutput> source) {
  return {.width = kCrossWidth,
          .source_width = kSourceWidth,
          .heads = {4, 2},
          .head_size = 6,
          .key_bias = false,
          .source = std::move(source),
          .source_length = kSource,
          .text_length = kCrossTime,
          .files = {.first = {"q_proj", "k_proj", "v_proj"}, .last = "out_proj"}};
}

class CrossAttentionTest : public ::testing::Test {
 protected:
  CrossAttentionTest() {
    source_->set(values_, lengths_);
    randomize([&](const ParameterVisitor& visit) { layer_.visit_parameters(visit); }, stream_);
  }
  Tensor full(const Tensor& x) {
    ForwardOnlyTape tape(pass_);
    return layer_.forward(x, Tensor{}, tape, stream_);
  }
  std::string message(const Tensor& x) {
    try {
      full(x);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  const Stream stream_ = test_stream();
  const Pass pass_{.training = false};
  const std::shared_ptr<EncoderOutput> source_ = std::make_shared<EncoderOutput>();
  const Tensor values_ = normal_tensor({kCrossBatch, kSource, kSourceWidth}, 9, stream_);
  const Tensor lengths_ = integers({kSource, 4}, {kCrossBatch}, stream_);
  const Tensor x_ = normal_tensor({kCrossBatch, kCrossTime, kCrossWidth}, 1, stream_);
  CrossAttention layer_{{"h.0.cross", "layers.0.encoder_attn"}, spec_of(source_), stream_};
};

/// Two layers; the second also reads the output of the first.
TEST_F(CrossAttentionTest, SourceGradientSumsOverLayers) {
  CrossAttention second{"h.1.cross", spec_of(source_), stream_};
  randomize([&](const ParameterVisitor& visit) { second.visit_parameters(visit); }, stream_);
  Differentiable f;
  f.x = values_;
  f.forward = [&](ActivationTape& tape) {
    const Tensor first = layer_.forward(x_, x_, tape, stream_);
    return projected(second.forward(first, first, tape, stream_), stream_);
  };
  f.backward = [&](ActivationTape& tape) {
    const Tensor dy = projection_gradient(x_.shape(), stream_);
    const Tensor dfirst = clone(second.backward(dy, tape, stream_), stream_);
    for (std::int64_t i = 0; i < dy.elements(); ++i) dfirst.data<float>()[i] += dy.data<float>()[i];
    layer_.backward(dfirst, tape, stream_);
    const Tensor gradient = source_->take_gradient();
    EXPECT_FALSE(source_->take_gradient().defined());
    return gradient;
  };
  f.visit_parameters = [&](const ParameterVisitor& visit) {
    layer_.visit_parameters(visit);
    second.visit_parameters(visit);
  };
  expect_gradients_match(f, stream_);
  const StepGradients step(f.visit_parameters, stream_);
  const Tensor dsource = run_backward(f).view({kCrossBatch * kSource, kSourceWidth});
  const Tensor beyond = dsource.rows(kSource + 4, 2 * kSource);
  for (const double value : values_of(clone(beyond, stream_))) EXPECT_EQ(value, 0);
}

TEST_F(CrossAttentionTest, SkipsUnwantedSourceGradient) {
  const StepGradients step([&](const ParameterVisitor& visit) { layer_.visit_parameters(visit); },
                           stream_);
  const double backward = layer_.flops(kCrossTime).backward;
  source_->set_requires_gradient(false);
  EXPECT_LT(layer_.flops(kCrossTime).backward, backward);
  PlainTape tape(pass_);
  layer_.forward(x_, Tensor{}, tape, stream_);
  layer_.backward(projection_gradient(x_.shape(), stream_), tape, stream_);
  EXPECT_TRUE(tape.empty());
  EXPECT_FALSE(source_->take_gradient().defined());
}

LayerSpec decoder_layer(const std::shared_ptr<EncoderOutput>& source) {
  LayerSpec layer = plain_layer(kCrossWidth, 3, 4 * kCrossWidth);
  layer.insert(
      layer.begin() + 1,
      {.name = "cross", .norm = "ln_cross", .make = branch_of<CrossAttention>(spec_of(source))});
  return layer;
}

/// Keys, values and other dropped activations are recomputed with the same bits at each level.
TEST_F(CrossAttentionTest, RecomputationIsBitIdentical) {
  ResidualBlock block("h.0", {.width = kCrossWidth}, decoder_layer(source_), 1, stream_);
  const auto visit_all = [&](const ParameterVisitor& visit) { block.visit_parameters(visit); };
  randomize(visit_all, stream_);
  StepGradients step(visit_all, stream_);
  CheckpointedModule checkpointed(block);
  std::vector<std::vector<double>> wanted;
  for (std::size_t level = 0; level <= kRebuilds; ++level) {
    const bool whole = level == kRebuilds;
    Module& module = whole ? static_cast<Module&>(checkpointed) : block;
    PlainTape tape(Pass{}, whole ? Rebuild::kNothing : static_cast<Rebuild>(level));
    step.begin();
    const Tensor y = module.forward(x_, tape, stream_);
    const Tensor dx =
        module.backward(clone(projection_gradient(y.shape(), stream_), stream_), tape, stream_);
    std::vector<std::vector<double>> got{values_of(y), values_of(dx),
                                         values_of(source_->take_gradient())};
    block.visit_parameters(
        [&](Parameter& parameter) { got.push_back(values_of(parameter.gradient())); });
    if (wanted.empty()) wanted = got;
    EXPECT_EQ(got, wanted) << "level " << level;
  }
}

TEST_F(CrossAttentionTest, KeepsDeclaredActivations) {
  expect_kept({.width = kCrossWidth}, decoder_layer(source_), stream_);
}

/// Text n of a state reads source n / 2, so two texts share each source.
TEST_F(CrossAttentionTest, DecodingMatchesForward) {
  source_->set_texts_per_source(2);
  const auto state = layer_.make_state({.texts = 4, .tokens = kCrossTime}, DType::kF32, stream_);
  const std::vector<double> wanted = values_of(full(x_));
  const auto rows = [&](std::int64_t b, std::int64_t begin, std::int64_t end) {
    return x_.view({kCrossBatch * kCrossTime, kCrossWidth})
        .rows(b * kCrossTime + begin, b * kCrossTime + end);
  };
  const auto close_to_rows = [&](const Tensor& got, std::size_t at, std::size_t first) {
    const std::vector<double> all = values_of(got);
    for (std::size_t i = 0; i < kCrossWidth; ++i)
      ASSERT_NEAR(all[at * kCrossWidth + i], wanted[first * kCrossWidth + i], 1e-5);
  };
  for (const std::int64_t text : {1, 2}) {  // from source 0 and from source 1
    const std::int64_t b = text / 2;
    const Tensor got = layer_.decode(rows(b, 0, 3).view({1, 3, kCrossWidth}), Tensor{},
                                     {.begun = text}, state.get(), pass_, stream_);
    for (std::size_t t = 0; t < 3; ++t)
      close_to_rows(got, t, static_cast<std::size_t>(b * kCrossTime) + t);
  }
  const Tensor next =
      Tensor::empty({3, 1, kCrossWidth}, DType::kF32, MemoryKind::kActivations, stream_);
  for (const auto& [row, b] : {std::pair{0, 1}, {1, 0}, {2, 1}})
    copy(next.view({3, kCrossWidth}).rows(row, row + 1), rows(b, 3, 4), stream_);
  const Tensor got = layer_.decode(next, Tensor{}, {.each = integers({2, 1, 3}, {3}, stream_)},
                                   state.get(), pass_, stream_);
  for (const auto& [row, b] : {std::pair{0u, 1u}, {1u, 0u}, {2u, 1u}})
    close_to_rows(got, row, b * static_cast<std::size_t>(kCrossTime) + 3);
}

/// The state is invalid once a different source is set.
TEST_F(CrossAttentionTest, StateCachesKeysAndValuesOfSource) {
  const auto state = layer_.make_state({.texts = 2, .tokens = kCrossTime}, DType::kF32, stream_);
  const Tensor now =
      x_.view({kCrossBatch * kCrossTime, kCrossWidth}).rows(0, 2).view({2, 1, kCrossWidth});
  const auto decoded = [&] {
    return values_of(layer_.decode(now, Tensor{}, {.each = integers({0, 1}, {2}, stream_)},
                                   state.get(), pass_, stream_));
  };
  const std::vector<double> first = decoded();
  const Tensor before = clone(values_, stream_);
  std::fill_n(values_.data<float>(), values_.elements(), 0.5f);
  EXPECT_EQ(decoded(), first) << "computed again";
  source_->set(values_, lengths_);
  EXPECT_NE(decoded(), first);
  source_->set(before, lengths_);
  EXPECT_EQ(decoded(), first);
}

TEST_F(CrossAttentionTest, FilesOmitKeyBias) {
  std::vector<std::string> names;
  layer_.visit_parameters([&](Parameter& parameter) {
    for (const FileTensor& tensor : parameter.in_files())
      names.push_back(concat(parameter.name(), " ", tensor.name, " ", tensor.shape.text()));
  });
  EXPECT_EQ(names, (std::vector<std::string>{
                       "h.0.cross.c_q.weight layers.0.encoder_attn.q_proj.weight (24, 12)",
                       "h.0.cross.c_q.bias layers.0.encoder_attn.q_proj.bias (24)",
                       "h.0.cross.c_kv.weight layers.0.encoder_attn.k_proj.weight (12, 8)",
                       "h.0.cross.c_kv.weight layers.0.encoder_attn.v_proj.weight (12, 8)",
                       "h.0.cross.c_kv.bias layers.0.encoder_attn.v_proj.bias (12)",
                       "h.0.cross.c_proj.weight layers.0.encoder_attn.out_proj.weight (12, 24)",
                       "h.0.cross.c_proj.bias layers.0.encoder_attn.out_proj.bias (12)"}));
  std::vector<std::string> linears;
  layer_.visit_linears([&](Linear& linear) { linears.push_back(linear.weight().name()); });
  EXPECT_EQ(linears, (std::vector<std::string>{"h.0.cross.c_q.weight", "h.0.cross.c_kv.weight",
                                               "h.0.cross.c_proj.weight"}));
}

TEST_F(CrossAttentionTest, RejectsMismatchedOrMissingSource) {
  const auto expect_named = [&](const Tensor& x, const std::vector<const char*>& parts) {
    const std::string said = message(x);
    for (const char* part : parts) EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  expect_named(normal_tensor({3, kCrossTime, kCrossWidth}, 1, stream_),
               {"h.0.cross", "x is (3, 5, 12)", "(2, 15, 8)", "the same number of sequences"});
  source_->set(normal_tensor({kCrossBatch, kSource, 9}, 1, stream_));
  expect_named(x_, {"h.0.cross", "(2, 15, 9)", "c_kv.weight is (24, 8)", "(batch, length, 8)"});
  source_->set(values_, integers({kSource + 1, 1}, {kCrossBatch}, stream_));
  expect_named(x_, {"length 0 is 16", "0 to 15"});
  source_->drop();
  expect_named(x_, {"h.0.cross", "the encoder's output is not set"});
}

}  // namespace
}  // namespace hybrid_trainer::testing
