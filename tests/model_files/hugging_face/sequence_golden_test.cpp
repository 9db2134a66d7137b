#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/files/config_fields.h"
#include "src/files/safetensors.h"
#include "tests/model_files/hugging_face/golden_step.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"

// Compares with transformers' results for Whisper and BART folders that it wrote
// (tests/golden/make_whisper_golden.py, make_bart_golden.py, make_smoothing_golden.py).
namespace hybrid_trainer::testing {
namespace {

class SequenceGolden : public ::testing::TestWithParam<const char*> {
 protected:
  SequenceGolden() { read_hugging_face_weights(folder_, *model_, stream_); }
  Tensor load(const std::string& name) const {
    return expected_.load(name, MemoryKind::kData, stream_);
  }
  /// Logits without the padding of the vocabulary.
  std::vector<double> values(const Tensor& logits) const {
    std::vector<double> values;
    for (std::int64_t row = 0; row < logits.size(0); ++row) {
      const auto padded = values_of(logits.rows(row, row + 1));
      values.insert(values.end(), padded.begin(), padded.begin() + config_.vocabulary);
    }
    return values;
  }
  Batch batch() const {
    const Batch tokens = token_batch(load("tokens"), load("targets"));
    std::vector<NamedTensor> tensors = tokens.tensors();
    if (expected_.contains("features")) {
      tensors.push_back({"features", load("features")});
    } else {
      const Tensor lengths = load("source_lengths");
      tensors.push_back({"source_tokens", load("source_tokens")});
      tensors.push_back({"source_positions", positions(tensors.back().tensor.shape(), lengths)});
      tensors.push_back({"source_lengths", lengths});
    }
    return Batch(std::move(tensors), tokens.tokens_per_example());
  }
  /// Positions from 0 in each source, and negative ones in its padding.
  Tensor positions(const Shape& shape, const Tensor& lengths) const {
    const Tensor all = Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream_);
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      const std::int64_t place = i % shape[1];
      const std::int32_t length = lengths.data<std::int32_t>()[i / shape[1]];
      all.data<std::int32_t>()[i] =
          static_cast<std::int32_t>(place < length ? place : place - length);
    }
    return all;
  }
  std::vector<double> logits(LanguageModel& model) const {
    model.encode(batch(), pass_, stream_);
    return values(model.logits(load("tokens"), pass_, stream_));
  }
  std::vector<double> wanted_gradient(const Parameter& parameter) const {
    return gradient_of(parameter, expected_);
  }
  /// The gradient in transformers' file; the head's bias, which it does not train, has none.
  std::vector<double> gradient_of(const Parameter& parameter, const SafetensorsFile& file) const {
    if (parameter.name() == "lm_head.bias")
      return std::vector<double>(static_cast<std::size_t>(parameter.elements()));
    return gradient_of_parts(
        parameter,
        [&](const FileTensor& part) {
          return file.load("grad.model." + part.name, MemoryKind::kData, stream_);
        },
        stream_);
  }

  const Stream stream_ = test_stream();
  const Pass pass_{.training = false};
  const std::string folder_ = concat(HT_TEST_DATA_DIR, "/", GetParam());
  const SafetensorsFile expected_{folder_ + "/expected.safetensors"};
  const ModelConfig config_ = read_hugging_face_model_config(folder_, 0);
  const std::unique_ptr<LanguageModel> model_ = make_model(config_, 1, stream_);
};

TEST_P(SequenceGolden, LogitsMatch) {
  EXPECT_LT(relative_error(logits(*model_), values_of(load("logits"))), kOfTransformers);
}

TEST_P(SequenceGolden, LossAndGradientsMatchAtAnyRecompute) {
  const GoldenStep wanted{*load("loss").data<float>(), [this](const Parameter& parameter) {
                            return wanted_gradient(parameter);
                          }};
  expect_step(*model_, batch(), wanted, {0, 0.3, 0.6, 1}, stream_);
}

TEST_P(SequenceGolden, CachedGreedyTokensMatch) {
  const Tensor wanted = load("greedy");
  for (std::int64_t text = 0; text < wanted.size(0); ++text) {
    const Batch source = batch().examples(text, text + 1);
    model_->encode(source, pass_, stream_);
    const auto state =
        model_->make_decode_state({.texts = 1, .tokens = wanted.size(1)}, DType::kF32, stream_);
    const std::int32_t* const ids = wanted.data<std::int32_t>() + text * wanted.size(1);
    const std::vector<std::int64_t> texts{0};
    std::int64_t seen = 0;
    for (std::int64_t t = 2; t < wanted.size(1); ++t) {
      const Tensor tokens = Tensor::empty({1, t - seen}, DType::kI32, MemoryKind::kData, stream_);
      std::copy(ids + seen, ids + t, tokens.data<std::int32_t>());
      seen = t;
      const auto next = values(model_->next_logits(tokens, texts, *state, 1, pass_, stream_));
      EXPECT_EQ(std::ranges::max_element(next) - next.begin(), ids[t]) << text << " at " << t;
    }
  }
}

TEST_P(SequenceGolden, ExportRoundTripKeepsLogits) {
  const TemporaryFolder scratch;
  export_hugging_face(*model_, nullptr, scratch / "out", stream_);
  const ModelConfig config = read_hugging_face_model_config(scratch / "out", 0);
  EXPECT_EQ(config_json(config), config_json(config_));
  const auto again = make_model(config, 2, stream_);
  read_hugging_face_weights(scratch / "out", *again, stream_);
  EXPECT_EQ(logits(*again), logits(*model_));
}

class LabelSmoothingGolden : public SequenceGolden {
 protected:
  struct Step {
    double loss;
    std::size_t peak_bytes;
  };
  /// A batch in which some targets are ignored.
  Batch learnt_batch() const {
    const Batch whole = batch();
    std::vector<NamedTensor> tensors;
    for (const auto& [name, tensor] : whole.tensors())
      tensors.push_back(
          {name, name == "targets" ? smoothed_.load(name, MemoryKind::kData, stream_) : tensor});
    Batch is_target(std::move(tensors), whole.tokens_per_example());
    is_target.set_targets(static_cast<double>(whole.tokens() - kNotLearnt));
    return is_target;
  }
  Step step(float smoothing) {
    const Batch is_target = learnt_batch();
    stream_.pool()->reset_peaks();
    PlainTape tape{Pass{.label_smoothing = smoothing}};
    const Tensor loss = model_->forward(is_target, 1, tape, stream_);
    model_->backward(is_target, tape, stream_);
    return {kernels::wait_for_value(loss, stream_), stream_.pool()->use().peak_total};
  }
  static constexpr std::int64_t kNotLearnt = 5;
  static constexpr float kSmoothing = 0.15f;
  const SafetensorsFile smoothed_{folder_ + "/smoothed.safetensors"};
};

TEST_P(LabelSmoothingGolden, MatchesPyTorchWithoutExtraMemory) {
  StepGradients gradients(
      [this](const ParameterVisitor& visit) {
        model_->visit_parameters([&](Parameter& parameter) {
          if (parameter.trainable()) visit(parameter);
        });
      },
      stream_);
  step(0);  // allocates all memory of a step
  gradients.begin();
  const Step plain = step(0);
  gradients.begin();
  const Step smoothed = step(kSmoothing);
  const double wanted = values_of(smoothed_.load("loss", MemoryKind::kData, stream_)).front();
  EXPECT_NEAR(smoothed.loss, wanted, 1e-6 * wanted);
  EXPECT_GT(std::abs(plain.loss - wanted), 1e-3);
  EXPECT_EQ(smoothed.peak_bytes, plain.peak_bytes);
  model_->visit_parameters([&](Parameter& parameter) {
    if (!parameter.trainable() || parameter.name() == "lm_head.bias") return;
    EXPECT_LT(relative_error(values_of(parameter.gradient()), gradient_of(parameter, smoothed_)),
              kOfTransformers)
        << parameter.name();
  });
}

INSTANTIATE_TEST_SUITE_P(Folders, LabelSmoothingGolden, ::testing::Values("whisper_a", "bart_a"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(Folders, SequenceGolden,
                         ::testing::Values("whisper_a", "whisper_b", "bart_a", "bart_b"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hybrid_trainer::testing
