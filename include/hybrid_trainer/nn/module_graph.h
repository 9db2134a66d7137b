#pragma once

#include "hybrid_trainer/kernels/convolution.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/cross_attention.h"
#include "hybrid_trainer/nn/graph_part.h"
#include "hybrid_trainer/nn/positional_encoding.h"
#include "hybrid_trainer/nn/residual_block.h"

/// A network as a list: tensors of the batch, parts that read tensors of the batch or what earlier
/// parts made, and losses. Shapes leave out the batch; channels come last. Parameters are named
/// "<part>.…".

namespace hybrid_trainer::graph {

/// One entry of the list, which has exactly one of the last three.
struct Node {
  ModuleName name;
  std::vector<std::string> reads{};     // names of earlier entries
  std::vector<std::string> targets{};   // of a loss: tensors of the batch
  double weight = 1;                    // of a loss, in the sum of all
  std::optional<BatchTensor> tensor{};  // of the batch
  PartMaker part{};
  LossMaker loss{};
};

// Tensors of the batch, f32 features or i32 tokens (also lengths and positions), of which nobody asks
// for a gradient.
Node input(const std::string& name, const Shape& example);
Node token_input(const std::string& name, const Shape& example);

// Parts.

/// One module. ("video.cnn", "video", sequence({...})).
Node part(const ModuleName& name, const std::string& reads, ModuleMaker make);
/// A part of one's own, of several tensors.
Node part(const ModuleName& name, std::vector<std::string> reads, PartMaker make);

enum class Along { kTokens, kChannels };
/// Tokens (B, N, C) behind one another, or channels (…, C) of the same places.
Node concatenate(const ModuleName& name, std::vector<std::string> reads,
                 Along along = Along::kTokens);
/// Tensors of one shape, added in their order.
Node sum(const ModuleName& name, std::vector<std::string> reads);

/// Pre-norm blocks of attention and a perceptron over tokens (B, N, C).
struct Transformer {
  std::int64_t layers = 1;
  int heads = 4;
  std::int64_t inner_width = 0;  // of the perceptron; 0: 4·C
  bool causal = false;           // tokens see earlier ones alone; else all
  float score_scale = 0;         // of self-attention's scores; 0: 1/√(C/heads)
  /// T5's bias of distances, added to those scores in all layers alike; none: nothing is.
  std::optional<RelativeBuckets> relative{};
  float dropout = 0;
  NormSpec norm{};
  bool final_norm = true;   // behind the last block, "<name>.ln_f"
  std::string source{};     // (B, S, any), to which each block attends too; none: ""
  std::string lengths{};    // (1) i32 of each example: how many tokens of the source count; "": all
  std::string positions{};  // (N) i32: places in documents, which do not see each other; "": one
};
/// Weights "<name>.h.0.attn.…", "cross", "mlp", and "<name>.relative.weight" (heads, buckets).
Node transformer(const ModuleName& name, const std::string& reads, const Transformer& spec);

/// Of which branches a layer of width C consists, where `source` is read by those that attend to it.
struct LayerInputs {
  std::int64_t width, tokens;               // C, N
  std::shared_ptr<EncoderOutput> source{};  // null where there is none
  std::int64_t source_width = 0, source_tokens = 0;
  std::shared_ptr<RelativeBias> relative{};  // of all layers alike; null where there is none
};
using LayerMaker = std::function<LayerSpec(const LayerInputs& inputs)>;

/// Residual blocks of any branches, in place of Transformer's.
struct Stack {
  std::int64_t layers = 1;
  LayerMaker layer{};
  ResidualSpec residual{};  // its width is C, whatever it says here
  ModuleName block{"h"};    // blocks are "<name>.h.0", …
  std::optional<ModuleName> final_norm = ModuleName("ln_f");
  std::optional<FirstDeviations> deviations{};   // none: by C and the number of layers
  std::optional<RelativeBias::Spec> relative{};  // "<name>.relative", for LayerInputs; none: null
  std::string source{}, lengths{}, positions{};  // as Transformer's
};
Node stack(const ModuleName& name, const std::string& reads, const Stack& spec);

// Modules, for `part`. Sizes of their inputs follow from what they read.

/// One after the other: "<name>.0.…", "<name>.1.…".
ModuleMaker sequence(std::vector<ModuleMaker> modules);
/// x plus what the modules make of it.
ModuleMaker residual(std::vector<ModuleMaker> modules);

ModuleMaker linear(std::int64_t outputs, bool bias = true);
struct ConvolutionSpec {
  std::int64_t outputs = 0;
  kernels::Window window{};
  std::int64_t groups = 1;
  bool bias = true;
};
/// Over one to three dimensions, as the input has.
ModuleMaker convolution(const ConvolutionSpec& spec);
/// A window of `size` (odd) places in each dimension around each place, or each `stride`th.
kernels::Window around(std::int64_t size, const kernels::SpatialSizes& stride = {1, 1, 1});
ModuleMaker group_norm(std::int64_t groups, float epsilon = 1e-5f);
ModuleMaker norm(const NormSpec& spec = {});
ModuleMaker activation(kernels::ActivationKind kind);
ModuleMaker max_pooling(const kernels::Window& window);
ModuleMaker mean_pooling(const kernels::Window& window,
                         kernels::Divisor divisor = kernels::Divisor::kWindow);
ModuleMaker upsampling(const kernels::SpatialSizes& factors,
                       kernels::Interpolation interpolation = kernels::Interpolation::kNearest);
/// Videos (T, H, W, C), whose fragments of `frames` frames the module sees one by one; what it makes of
/// them, (…, D), are tokens (N, D) of the video.
ModuleMaker fragments(std::int64_t frames, ModuleMaker module);
/// Images or videos in patches, as tokens (N, width).
ModuleMaker patches(std::int64_t width, const kernels::SpatialSizes& patch);
/// Rows of a table (vocabulary, width), "<name>.weight", for i32 tokens (N).
ModuleMaker embedding(std::int64_t vocabulary, std::int64_t width);
/// Adds a learnt row to each token, of "<name>.weight" (N, C).
ModuleMaker positions();
/// Adds sines and cosines of its place to each token, which are not trained: a frozen "<name>.weight".
ModuleMaker sinusoids();
/// Puts `count` learnt tokens before the others, "<name>.weight" (count, C).
ModuleMaker class_tokens(std::int64_t count = 1);
/// (D1, …, C) as tokens (N, C).
ModuleMaker tokens();
/// (D1, …, C) as (D1·…·C).
ModuleMaker flatten();
/// The same numbers in another shape.
ModuleMaker reshape(const Shape& example);
/// One of the tokens (N, C), as (C).
ModuleMaker token(std::int64_t index);
/// The mean over all places or tokens, (C).
ModuleMaker mean();

// Losses. Each is a mean, which the network's loss has `weight` times.

struct CrossEntropy {
  double weight = 1;
  float smoothing = 0;  // as PyTorch's label_smoothing; 0: Pass::label_smoothing
  /// The batch counts the targets that are learnt (Batch::targets); else the mean is over all of them.
  bool counts_targets = false;
};
/// Of classes (K) or of tokens (N, K): logits, against `targets` i32, kNoTarget where nothing is
/// learnt. Measures: accuracy.
Node cross_entropy(const std::string& name, const std::string& logits, const std::string& targets,
                   const CrossEntropy& spec = {});
/// (x − y)², of all numbers of x against `targets` f32 of its shape. Measures: absolute_error,
/// squared_error, target, target_square.
Node squared_error(const std::string& name, const std::string& predictions,
                   const std::string& targets, double weight = 1);
/// d²/2 where |d| ≤ delta, else delta·(|d| − delta/2).
Node huber(const std::string& name, const std::string& predictions, const std::string& targets,
           double weight = 1, float delta = 1);

/// A grid of cells, each with an object or none. Predictions (…, 5 + classes): a logit for whether there
/// is one, four numbers for its box, and logits of classes.
struct Detection {
  std::int64_t classes = 1;
  double weight = 1;
  float positive_weight = 1;  // of cells with an object, in the binary cross entropy
  float box_weight = 1, class_weight = 1;
  float beta = 1;  // boxes: d²/(2·beta) where |d| < beta, else |d| − beta/2
};
/// Against `classes`, (…) i32, kNoTarget where a cell has no object, and `boxes`, (…, 4) f32. The mean is
/// over all cells. Measures: precision, recall, f1, box_error, class_accuracy.
Node detection(const std::string& name, const std::string& predictions, const std::string& classes,
               const std::string& boxes, const Detection& spec = {});

}  // namespace hybrid_trainer::graph

namespace hybrid_trainer {

namespace graph {
class Plan;
}

/// A network of parts that is written as a list (graph::Node): forward runs in the list's order, and
/// backward in reverse. What several parts read gets the sum of their gradients, in a fixed order. Its
/// loss is the sum of its losses times their weights. The batch's tensors have the shapes that the list
/// says, for any number of examples.
class ModuleGraph final : public Network {
 public:
  /// Weights are drawn from `seed`. Throws ConfigError where the list names what it does not have, and
  /// ShapeMismatch, which names both parts, where shapes do not meet.
  ModuleGraph(std::vector<graph::Node> nodes, std::uint64_t seed, const Stream& stream);
  ~ModuleGraph() override;

  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override;
  void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override;
  void visit_routings(const RoutingVisitor& visit) override;
  std::vector<std::string> parts() const override;
  /// A pattern is of parts' names: "video.*" is of "video" and "video.cnn". What a part computes in, its
  /// weights have from the next Parameter::compute_in on.
  void set_parts(const std::vector<PartSettings>& settings) override;
  /// "<loss>.loss", and what the loss measures.
  std::vector<Measure> wait_for_measures(const Batch& batch, const Pass& pass,
                                         const Stream& stream) override;
  double step_flops(const Batch& batch) override;
  /// What a step adds to that, where Pass::recompute is `share`.
  double recomputed_flops(const Batch& batch, double share) override;

  /// What a part makes of a batch, in a pass that is not for training. Needs what leads to the part.
  Tensor result_of(const std::string& part, const Batch& batch, const Pass& pass,
                   const Stream& stream);
  /// What batches hold: tensors that parts read, then targets.
  std::vector<graph::BatchTensor> batch_tensors() const;
  Batch empty_batch(const BatchForm& form, const Stream& stream) const override {
    return empty_batch(form.examples, stream);
  }
  /// Of so many examples, uninitialised. `tokens_per_example`: see Batch.
  Batch empty_batch(std::int64_t size, const Stream& stream,
                    std::int64_t tokens_per_example = 1) const;

 private:
  std::unique_ptr<graph::Plan> plan_;
};

}  // namespace hybrid_trainer
