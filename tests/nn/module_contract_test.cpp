#include <algorithm>
#include <cmath>
#include <memory>

#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/cross_attention.h"
#include "hybrid_trainer/nn/embedding.h"
#include "hybrid_trainer/nn/expert_mixture.h"
#include "hybrid_trainer/nn/language_head.h"
#include "hybrid_trainer/nn/mixers.h"
#include "hybrid_trainer/nn/norm.h"
#include "hybrid_trainer/nn/positional_encoding.h"
#include "tests/nn/spatial_modules.h"
#include "tests/support/gradient_check.h"
#include "tests/support/layers.h"

// Contract tests of modules; each row of kCases is a module.
namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kBatch = 2, kTime = 5, kWidth = 12;
constexpr int kHeads = 3;

/// A module's projected output as a function of x. forward(module, x, tape) calls the module.
template <class M, class Forward>
Differentiable of_module(std::shared_ptr<M> module, const Shape& output, const Stream& stream,
                         Forward forward) {
  Differentiable f;
  f.x = normal_tensor({kBatch, kTime, kWidth}, 3, stream);
  const Tensor x = f.x;
  f.forward = [=, &stream](ActivationTape& tape) {
    return projected(forward(*module, x, tape), stream);
  };
  f.backward = [=, &stream](ActivationTape& tape) {
    return module->backward(projection_gradient(output, stream), tape, stream);
  };
  f.visit_parameters = [=](const ParameterVisitor& visit) { module->visit_parameters(visit); };
  return f;
}
template <class M>
Differentiable of_module(std::shared_ptr<M> module, const Shape& output, const Stream& stream) {
  return of_module(module, output, stream, [&stream](M& m, const Tensor& x, ActivationTape& tape) {
    return m.forward(x, tape, stream);
  });
}

Differentiable linear(const Stream& stream) {
  return of_module(std::make_shared<Linear>("linear", kWidth, 7, stream), {kBatch, kTime, 7},
                   stream);
}

Differentiable layer_norm(const Stream& stream) {
  return of_module(std::make_shared<LayerNorm>("norm", kWidth, 1e-5f, true, stream),
                   {kBatch, kTime, kWidth}, stream);
}

/// The input also flows through the residual stream, so backward adds to an existing gradient.
Differentiable layer_norm_onto(const Stream& stream) {
  const auto norm = std::make_shared<LayerNorm>("norm", kWidth, 1e-5f, true, stream);
  Differentiable f = of_module(norm, {kBatch, kTime, kWidth}, stream);
  const Tensor x = f.x;
  f.forward = [=, &stream](ActivationTape& tape) {
    return projected(norm->forward(x, tape, stream), stream) + projected(x, stream);
  };
  f.backward = [=, &stream](ActivationTape& tape) {
    const Tensor dy = projection_gradient(x.shape(), stream);
    const Tensor dx = clone(dy, stream);
    norm->backward_onto(dx, dy, tape, stream);
    return dx;
  };
  return f;
}

/// y = residual + branch(x).
template <class Branch>
Differentiable branch(const Stream& stream, const typename Branch::Spec& spec) {
  const Shape shape{kBatch, kTime, kWidth};
  const Tensor residual = normal_tensor(shape, 4, stream);
  return of_module(std::make_shared<Branch>("branch", spec, stream), shape, stream,
                   [=, &stream](Branch& module, const Tensor& x, ActivationTape& tape) {
                     return module.forward(x, residual, tape, stream);
                   });
}

/// Runs f on sequences with documents of two and three tokens.
Differentiable in_two_documents(Differentiable f, const Stream& stream) {
  f.pass.positions = Tensor::empty({kBatch, kTime}, DType::kI32, MemoryKind::kData, stream);
  for (std::int64_t i = 0; i < kBatch * kTime; ++i) {
    const std::int64_t t = i % kTime;
    f.pass.positions.data<std::int32_t>()[i] = static_cast<std::int32_t>(t < 2 ? t : t - 2);
  }
  return f;
}

Differentiable attention(const Stream& stream) {
  return branch<Attention>(stream,
                           {.width = kWidth, .heads = kHeads, .head_size = kWidth / kHeads});
}
Differentiable feed_forward(const Stream& stream) {
  return branch<FeedForward>(stream, {.width = kWidth, .intermediate_size = 4 * kWidth});
}

Differentiable block(const ResidualSpec& residual, const LayerSpec& layer, const Stream& stream) {
  Differentiable f = of_module(std::make_shared<ResidualBlock>("h.1", residual, layer, 3, stream),
                               {kBatch, kTime, kWidth}, stream);
  f.pass.seed = 5;
  f.pass.step = 9;
  return f;
}
LayerSpec plain() { return plain_layer(kWidth, kHeads, 4 * kWidth); }
Differentiable plain_block(const Stream& stream) {
  return block({.width = kWidth}, plain(), stream);
}
Differentiable post_norm_block(const Stream& stream) {
  return block({.width = kWidth, .post_norm = true}, plain(), stream);
}
Differentiable post_norm_block_with_dropout(const Stream& stream) {
  return block({.width = kWidth, .dropout = 0.25f, .scale = 0.7f, .post_norm = true}, plain(),
               stream);
}
Differentiable plain_block_with_dropout(const Stream& stream) {
  return block({.width = kWidth, .dropout = 0.25f}, plain(), stream);
}
Differentiable linear_without_bias(const Stream& stream) {
  return of_module(std::make_shared<Linear>("linear", kWidth, 7, stream, false), {kBatch, kTime, 7},
                   stream);
}
Differentiable attention_without_biases(const Stream& stream) {
  return branch<Attention>(stream, {.width = kWidth,
                                    .heads = kHeads,
                                    .head_size = kWidth,
                                    .biases = false,
                                    .output_bias = false});
}
Differentiable feed_forward_without_biases(const Stream& stream) {
  return branch<FeedForward>(stream,
                             {.width = kWidth, .intermediate_size = 3 * kWidth, .biases = false});
}

const NormSpec kLlamaNorm{NormKind::kRootMeanSquare, 0.1f};
Attention::Spec llama_attention() {
  static const auto rotary = std::make_shared<RotaryTable>(100, RotaryScaling{}, kTime, 6);
  return {.width = kWidth,
          .heads = {4, 2},
          .head_size = 6,
          .biases = false,
          .output_bias = false,
          .rotary = rotary};
}
GatedFeedForward::Spec llama_feed_forward() {
  return {.width = kWidth, .intermediate_size = 9, .biases = false};
}
LayerSpec llama_layer() {
  return layer_of<GatedFeedForward>(llama_attention(), llama_feed_forward());
}
Differentiable rms_norm(const Stream& stream) {
  return of_module(std::make_shared<RmsNorm>("norm", kWidth, kernels::RmsNormSpec{0.1f}, stream),
                   {kBatch, kTime, kWidth}, stream);
}
Differentiable grouped_attention(const Stream& stream) {
  return branch<Attention>(stream, llama_attention());
}
Differentiable gated_feed_forward(const Stream& stream) {
  return branch<GatedFeedForward>(stream, llama_feed_forward());
}
ExpertMixture::Spec mixture(kernels::RoutingRule rule) {
  ExpertMixture::Spec spec{.experts = {.width = kWidth,
                                       .intermediate_size = 10,
                                       .routing = {.experts = 4, .chosen = 2, .rule = rule}}};
  spec.experts.losses = {};
  return spec;
}
Differentiable expert_mixture(const Stream& stream) {
  return branch<ExpertMixture>(stream, mixture(kernels::RoutingRule::kSoftmaxOfChosen));
}
Differentiable mixture_with_gated_expert(const Stream& stream) {
  ExpertMixture::Spec spec = mixture(kernels::RoutingRule::kSoftmax);
  spec.shared_width = 8;
  spec.shared_gate = true;
  return branch<ExpertMixture>(stream, spec);
}
Differentiable mixture_with_shared_expert(const Stream& stream) {
  ExpertMixture::Spec spec = mixture(kernels::RoutingRule::kSigmoid);
  spec.shared_width = 8;
  return branch<ExpertMixture>(stream, spec);
}
Differentiable clamped_mixture_with_biases(const Stream& stream) {
  ExpertMixture::Spec spec = mixture(kernels::RoutingRule::kSoftmaxOfChosen);
  spec.experts.clamped = kernels::ClampedGate{.limit = 4};
  spec.experts.biases = spec.experts.router_bias = true;
  return branch<ExpertMixture>(stream, spec);
}
Differentiable llama_block(const Stream& stream) {
  return block({kWidth, kLlamaNorm}, llama_layer(), stream);
}

/// A norm with all options that differ between families.
const NormSpec kGemmaNorm{NormKind::kRootMeanSquareOnePlus, 0.1f};
Attention::Spec gemma_attention() {
  Attention::Spec spec = llama_attention();
  spec.biases = true;
  spec.query_key_norm = kGemmaNorm.of_root_mean_square();
  spec.heads.scale = 0.7f;
  spec.heads.cap = 1.5f;
  spec.heads.window = 3;
  return spec;
}
LayerSpec gemma_layer() {
  GatedFeedForward::Spec feed_forward = llama_feed_forward();
  feed_forward.gate = kernels::Gate::kGelu;
  LayerSpec layer = layer_of<GatedFeedForward>(gemma_attention(), feed_forward);
  layer[0].last_norm = "ln_3";
  layer[1].last_norm = "ln_4";
  return layer;
}
Differentiable normed_attention(const Stream& stream) {
  return branch<Attention>(stream, gemma_attention());
}
Differentiable gemma_block(const Stream& stream) {
  return block({kWidth, kGemmaNorm}, gemma_layer(), stream);
}
Differentiable gemma_block_with_dropout(const Stream& stream) {
  return block({kWidth, kGemmaNorm, 0.25f}, gemma_layer(), stream);
}

/// Gated attention with rotary positions on a third of the channels.
Differentiable gated_attention(const Stream& stream) {
  static const auto rotary = std::make_shared<RotaryTable>(100, RotaryScaling{}, kTime, 2);
  Attention::Spec spec = llama_attention();
  spec.query_key_norm = kGemmaNorm.of_root_mean_square();
  spec.rotary = rotary;
  spec.gated = true;
  return branch<Attention>(stream, spec);
}
Differentiable gated_attention_without_norms(const Stream& stream) {
  Attention::Spec spec = llama_attention();
  spec.biases = spec.gated = true;
  return branch<Attention>(stream, spec);
}
/// A window, with documents of two and three tokens.
Differentiable bidirectional_attention(const Stream& stream) {
  Attention::Spec spec = llama_attention();
  spec.heads.window = 2;
  spec.bidirectional = true;
  return in_two_documents(branch<Attention>(stream, spec), stream);
}
Differentiable attention_without_key_bias(const Stream& stream) {
  return branch<Attention>(stream,
                           {.width = kWidth, .heads = {4, 2}, .head_size = 6, .key_bias = false});
}
/// Attends to sources of seven and three tokens with a different width.
Differentiable cross_attention(const Stream& stream) {
  const auto source = std::make_shared<EncoderOutput>();
  const Tensor lengths = Tensor::empty({kBatch}, DType::kI32, MemoryKind::kData, stream);
  lengths.data<std::int32_t>()[0] = 7;
  lengths.data<std::int32_t>()[1] = 3;
  source->set(normal_tensor({kBatch, 7, 10}, 8, stream), lengths);
  return branch<CrossAttention>(stream, {.width = kWidth,
                                         .source_width = 10,
                                         .heads = {4, 2},
                                         .head_size = 6,
                                         .key_bias = false,
                                         .source = source});
}
/// With a convolution of queries, keys and values, norms and rotary positions.
Differentiable convolved_attention(const Stream& stream) {
  Attention::Spec spec = llama_attention();
  spec.query_key_norm = kGemmaNorm.of_root_mean_square();
  spec.taps = 3;
  return branch<Attention>(stream, spec);
}
/// Windows in documents, with norms.
Differentiable attention_with_sinks(const Stream& stream) {
  Attention::Spec spec = gemma_attention();
  spec.sinks = true;
  return in_two_documents(branch<Attention>(stream, spec), stream);
}
/// Blocks of two tokens, of which queries see their own and a random one.
Differentiable attention_in_blocks(const Stream& stream) {
  Attention::Spec spec = llama_attention();
  spec.heads.pattern = {.block = 2, .local = 1, .random = 1};
  return branch<Attention>(stream, spec);
}
Differentiable scaled_block(const Stream& stream) {
  return block({.width = kWidth, .norm = kLlamaNorm, .scale = 0.3f}, llama_layer(), stream);
}
Differentiable scaled_block_with_dropout(const Stream& stream) {
  return block({.width = kWidth, .norm = kLlamaNorm, .dropout = 0.25f, .scale = 0.3f},
               llama_layer(), stream);
}

/// With biases, in two documents.
Differentiable short_convolution(const Stream& stream) {
  return in_two_documents(
      branch<ShortConvolution>(stream, {.width = kWidth, .taps = 3, .biases = true}), stream);
}
Differentiable state_space_mixer(const Stream& stream) {
  return branch<StateSpaceMixer>(
      stream, {.width = kWidth,
               .scan = {.heads = 4, .head_size = 3, .groups = 2, .state_size = 5},
               .taps = 3});
}
Differentiable delta_rule_mixer(const Stream& stream) {
  return branch<DeltaRuleMixer>(
      stream, {.width = kWidth,
               .scan = {.key_heads = 2, .value_heads = 4, .key_size = 5, .value_size = 3},
               .norm_epsilon = 0.1f});
}

SemiseparableMixer::Spec semiseparable(bool bidirectional, std::int64_t positions) {
  return {.width = kWidth,
          .heads = 3,
          .head_size = 4,
          .rank = 2,
          .bidirectional = bidirectional,
          .positions = positions};
}
Differentiable causal_semiseparable_mixer(const Stream& stream) {
  return branch<SemiseparableMixer>(stream, semiseparable(false, 0));
}
Differentiable bidirectional_semiseparable_mixer(const Stream& stream) {
  return branch<SemiseparableMixer>(stream, semiseparable(true, 0));
}
Differentiable semiseparable_mixer_by_position(const Stream& stream) {
  return branch<SemiseparableMixer>(stream, semiseparable(false, kTime + 2));
}
Differentiable bidirectional_semiseparable_mixer_by_position(const Stream& stream) {
  return in_two_documents(branch<SemiseparableMixer>(stream, semiseparable(true, kTime + 2)),
                          stream);
}
Differentiable hydra_mixer(const Stream& stream) {
  return branch<HydraMixer>(stream,
                            {.width = kWidth,
                             .scan = {.heads = 4, .head_size = 3, .groups = 2, .state_size = 5},
                             .taps = 3,
                             .norm_epsilon = 0.1f});
}
Differentiable resolvent_mixer(const Stream& stream) {
  return branch<ResolventMixer>(
      stream, {.width = kWidth, .potentials = 3, .limit = 100, .norm_epsilon = 0.1f});
}

/// Adapters on outputs 0–3 and 6, with dropout of their inputs.
Differentiable adapted_linear(const Stream& stream) {
  const auto linear = std::make_shared<Linear>("linear", kWidth, 7, stream);
  linear->set_adapter({{"q", 0, 4}, {"v", 6, 1}},
                      {.rank = 2, .scale = 0.7, .dropout = 0.25, .site = 3}, stream);
  Differentiable f = of_module(linear, {kBatch, kTime, 7}, stream);
  f.pass.seed = 5;
  return f;
}

/// Only magnitudes and x, because the gradients of A and B treat the rows' norms as constants.
Differentiable adapted_linear_with_magnitudes(const Stream& stream) {
  const auto linear = std::make_shared<Linear>("linear", kWidth, 7, stream);
  randomize([&](const ParameterVisitor& visit) { linear->visit_parameters(visit); }, stream);
  linear->set_adapter({{"q", 0, 4}, {"v", 6, 1}}, {.rank = 2, .scale = 0.7, .decomposed = true},
                      stream);
  Differentiable f = of_module(linear, {kBatch, kTime, 7}, stream);
  f.visit_parameters = [=](const ParameterVisitor& visit) {
    linear->visit_parameters([&](Parameter& parameter) {
      if (parameter.name().ends_with("vector")) return visit(parameter);
      parameter.freeze();
    });
  };
  return f;
}

/// Each linear map has an adapter, the first one in two parts. The base weights are frozen.
Differentiable with_adapters(const NormSpec& norm, const LayerSpec& layer, const Stream& stream) {
  const auto block =
      std::make_shared<ResidualBlock>("h.1", ResidualSpec{kWidth, norm}, layer, 3, stream);
  block->visit_linears([&](Linear& linear) {
    const std::int64_t rows = linear.weight().shape()[0];
    linear.set_adapter({{"first", 0, rows / 3}, {"last", rows / 2, rows - rows / 2}},
                       {.rank = 2, .scale = 0.7}, stream);
  });
  Differentiable f = of_module(block, {kBatch, kTime, kWidth}, stream);
  f.visit_parameters = [=](const ParameterVisitor& visit) {
    block->visit_parameters([&](Parameter& parameter) {
      if (belongs_to_adapter(parameter)) return visit(parameter);
      parameter.freeze();
      std::fill_n(master_of(parameter).data<float>(), parameter.elements(), 0.125f);
      master_of(parameter).data<float>()[0] = 0.5f;
    });
  };
  return f;
}
Differentiable adapted_block(const Stream& stream) { return with_adapters({}, plain(), stream); }
Differentiable adapted_llama_block(const Stream& stream) {
  return with_adapters(kLlamaNorm, llama_layer(), stream);
}

Differentiable adapted_mixture(const Stream& stream) {
  ExpertMixture::Spec spec = mixture(kernels::RoutingRule::kSoftmaxOfChosen);
  LayerSpec layer = llama_layer();
  layer[1].make = branch_of<ExpertMixture>(spec);
  return with_adapters(kLlamaNorm, layer, stream);
}

Differentiable embedding_of(Embedding::Spec spec, const Stream& stream) {
  spec.rows = 16, spec.positions = kTime + 2, spec.width = kWidth;
  const auto table = std::make_shared<Embedding>(spec, stream);
  const Tensor tokens = random_tokens({kBatch, kTime}, 11, 1, stream);
  Differentiable f;
  f.forward = [=, &stream](ActivationTape& tape) {
    return projected(table->forward(tokens, tape.pass(), stream), stream);
  };
  f.backward = [=, &stream](ActivationTape& tape) {
    table->backward(projection_gradient({kBatch, kTime, kWidth}, stream), tokens, tape.pass(),
                    stream);
    return Tensor{};
  };
  f.visit_parameters = [=](const ParameterVisitor& visit) { table->visit_parameters(visit); };
  return f;
}

Differentiable embedding(const Stream& stream) { return embedding_of({}, stream); }
/// Like BART's: skips the first rows of positions, and scales only tokens.
Differentiable scaled_embedding(const Stream& stream) {
  return embedding_of({.factor = 3, .scales_only_tokens = true, .first_position = 2}, stream);
}
Differentiable scaled_embedding_of_documents(const Stream& stream) {
  return in_two_documents(scaled_embedding(stream), stream);
}

Differentiable head(std::int64_t rows, std::int64_t width, std::int64_t vocabulary,
                    std::int64_t padded, const Stream& stream, float cap = 0) {
  const auto table =
      std::make_shared<Parameter>("wte.weight", Shape{padded, width}, Role::kEmbedding, stream);
  const auto head = std::make_shared<LanguageHead>(*table, vocabulary, cap);
  const Tensor targets = random_tokens({rows}, vocabulary, 2, stream);
  Differentiable f;
  f.x = normal_tensor({rows, width}, 3, stream);
  const Tensor x = f.x;
  f.forward = [=, &stream](ActivationTape& tape) {
    return kernels::wait_for_value(
        head->loss(x, targets, static_cast<double>(rows), 1.0f, tape, stream), stream);
  };
  f.backward = [=, &stream](ActivationTape& tape) { return head->backward(tape, stream); };
  f.visit_parameters = [=](const ParameterVisitor& visit) { visit(*table); };
  return f;
}
Differentiable language_head(const Stream& stream) { return head(10, kWidth, 21, 32, stream); }
Differentiable capped_language_head(const Stream& stream) {
  return head(10, kWidth, 21, 32, stream, 1.5f);
}
/// Chunks of 64 rows, the minimum, forced by the wide table.
Differentiable language_head_in_three_chunks(const Stream& stream) {
  return head(130, 3, 262100, 262144, stream);
}

struct Case {
  const char* name;
  Differentiable (*make)(const Stream& stream);
  GradientTolerance tolerance{};
  friend std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }
};

constexpr Case kCases[] = {
    {"Linear", linear},
    {"LayerNorm", layer_norm},
    {"LayerNormOnto", layer_norm_onto},
    {"Attention", attention},
    {"FeedForward", feed_forward},
    {"PlainBlock", plain_block},
    {"PlainBlockWithDropout", plain_block_with_dropout},
    {"PostNormBlock", post_norm_block},
    {"PostNormBlockWithDropout", post_norm_block_with_dropout},
    {"LinearWithoutBias", linear_without_bias},
    {"AttentionWithoutBiases", attention_without_biases},
    {"FeedForwardWithoutBiases", feed_forward_without_biases},
    {"RmsNorm", rms_norm},
    {"GroupedAttention", grouped_attention},
    {"GatedFeedForward", gated_feed_forward},
    {"ExpertMixture", expert_mixture, {.step = 1e-3, .relative = 4e-3}},
    {"MixtureWithGatedExpert", mixture_with_gated_expert, {.step = 1e-3, .relative = 4e-3}},
    {"MixtureWithSharedExpert", mixture_with_shared_expert, {.step = 1e-3, .relative = 4e-3}},
    {"ClampedMixtureWithBiases", clamped_mixture_with_biases, {.step = 1e-3, .relative = 4e-3}},
    {"AdaptedMixture", adapted_mixture, {.step = 1e-2, .relative = 2e-2}},
    {"LlamaBlock", llama_block},
    {"NormedAttention", normed_attention},
    {"GemmaBlock", gemma_block, {.step = 4e-3, .relative = 1e-3}},
    {"GemmaBlockWithDropout", gemma_block_with_dropout, {.step = 4e-3, .relative = 1e-3}},
    {"GatedAttention", gated_attention, {.step = 4e-3, .relative = 1e-3}},
    {"GatedAttentionWithoutNorms", gated_attention_without_norms},
    {"TwoWayAttention", bidirectional_attention},
    {"AttentionWithoutKeyBias", attention_without_key_bias},
    {"CrossAttention", cross_attention},
    {"ConvolvedAttention", convolved_attention, {.step = 4e-3, .relative = 1e-3}},
    {"AttentionWithSinks", attention_with_sinks},
    {"AttentionInBlocks", attention_in_blocks},
    {"ScaledBlock", scaled_block},
    {"ScaledBlockWithDropout", scaled_block_with_dropout},
    {"ShortConvolution", short_convolution},
    {"StateSpaceMixer", state_space_mixer, {.step = 4e-3, .relative = 1e-3}},
    {"DeltaRuleMixer", delta_rule_mixer, {.step = 1e-2, .relative = 4e-3}},
    {"CausalSemiseparableMixer", causal_semiseparable_mixer},
    {"TwoWaySemiseparableMixer", bidirectional_semiseparable_mixer},
    {"SemiseparableMixerByPosition", semiseparable_mixer_by_position},
    {"TwoWaySemiseparableMixerByPosition", bidirectional_semiseparable_mixer_by_position},
    {"HydraMixer", hydra_mixer, {.step = 4e-3, .relative = 1e-3}},
    {"ResolventMixer", resolvent_mixer},
    {"AdaptedLinear", adapted_linear},
    {"AdaptedLinearWithMagnitudes", adapted_linear_with_magnitudes},
    {"AdaptedBlock", adapted_block, {.relative = 2e-3}},
    {"AdaptedLlamaBlock", adapted_llama_block, {.relative = 2e-3}},
    {"Convolution", convolution},
    {"GroupedConvolutionWithoutBias", grouped_convolution_without_bias},
    {"DepthwiseConvolution", depthwise_convolution},
    {"PointwiseConvolution", pointwise_convolution},
    {"PatchEmbedding", patch_embedding},
    {"GroupNorm", group_norm},
    {"MeanPooling", mean_pooling},
    {"MaxPooling", max_pooling},
    {"MeanOfPlaces", mean_of_places},
    {"NearestUpsampling", nearest_upsampling},
    {"LinearUpsampling", linear_upsampling},
    {"Silu", silu},
    {"ExactGelu", exact_gelu},
    {"Embedding", embedding},
    {"ScaledEmbedding", scaled_embedding},
    {"ScaledEmbeddingOfDocuments", scaled_embedding_of_documents},
    {"LanguageHead", language_head},
    {"CappedLanguageHead", capped_language_head},
    {"LanguageHeadInThreeChunks", language_head_in_three_chunks, {.step = 2e-2, .directions = 1}},
};

class ModuleContract : public ::testing::TestWithParam<Case> {
 protected:
  ModuleContract() { randomize(f_.visit_parameters, stream_); }
  std::vector<std::vector<double>> gradients() {
    std::vector<std::vector<double>> all;
    f_.visit_parameters(
        [&](Parameter& parameter) { all.push_back(values_of(parameter.gradient())); });
    return all;
  }
  const Stream stream_ = test_stream();
  Differentiable f_ = GetParam().make(stream_);
};

TEST_P(ModuleContract, GradientsMatchFiniteDifferences) {
  expect_gradients_match(f_, stream_, GetParam().tolerance);
}

TEST_P(ModuleContract, GradientsAccumulateWithinStep) {
  StepGradients step(f_.visit_parameters, stream_);
  step.begin(2);
  run_backward(f_);
  const auto once = gradients();
  run_backward(f_);
  auto twice = gradients();
  for (std::size_t i = 0; i < once.size(); ++i) {
    for (double& value : twice[i]) value /= 2;
    EXPECT_LT(relative_error(twice[i], once[i]), 1e-5) << i;
  }
  step.begin();
  run_backward(f_);
  EXPECT_EQ(gradients(), once);
}

/// Overwrites the gradient of each weight as soon as it is complete.
class SpoilingSink final : public GradientSink {
 public:
  SpoilingSink(const std::vector<Parameter*>& parameters, const Stream& stream) {
    memory_.allocate(parameters, stream);
  }
  Tensor gradient(const Parameter& parameter) const override { return memory_.gradient(parameter); }
  void ready(const Parameter& parameter, const Stream&) override {
    const Tensor master = master_of(parameter);
    std::fill_n(master.data<float>(), master.elements(), std::nanf(""));
  }

 private:
  ResidentGradients memory_;
};

TEST_P(ModuleContract, DoesNotReadWeightAfterItsGradient) {
  std::vector<Parameter*> parameters;
  f_.visit_parameters([&](Parameter& parameter) { parameters.push_back(&parameter); });
  StepGradients kept(f_.visit_parameters, stream_);
  const Tensor wanted_dx = run_backward(f_);
  const auto wanted = gradients();
  SpoilingSink sink(parameters, stream_);
  begin_gradients(parameters, sink, 1);
  const Tensor dx = run_backward(f_);
  EXPECT_EQ(gradients(), wanted);
  if (f_.x) {
    EXPECT_EQ(values_of(dx), values_of(wanted_dx));
  }
  for (const Parameter* parameter : parameters)
    EXPECT_TRUE(std::isnan(master_of(*parameter).data<float>()[0])) << parameter->name();
}

TEST_P(ModuleContract, ForwardOnlyTapeMatchesPlainTape) {
  const StepGradients gradients(f_.visit_parameters, stream_);
  PlainTape tape(f_.pass);
  EXPECT_EQ(f_.forward(tape), loss_of(f_));
}

INSTANTIATE_TEST_SUITE_P(All, ModuleContract, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hybrid_trainer::testing
