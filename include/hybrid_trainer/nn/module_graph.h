#pragma once

#include "hybrid_trainer/kernels/convolution.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/cross_attention.h"
#include "hybrid_trainer/nn/graph_part.h"
#include "hybrid_trainer/nn/positional_encoding.h"
#include "hybrid_trainer/nn/residual_block.h"

/// Functions that make a network's list: tensors of the batch, parts that read earlier entries, and
/// losses. Shapes exclude the batch; channels come last. Parameters are named "<part>.…".

namespace hybrid_trainer::graph {

/// One entry of the list; exactly one of the last three fields is set.
struct Node {
  ModuleName name;
  std::vector<std::string> reads{};     // names of earlier entries
  std::vector<std::string> targets{};   // tensors of the batch that a loss reads
  double weight = 1;                    // weight of a loss in the total
  std::optional<BatchTensor> tensor{};  // a tensor of the batch
  PartMaker part{};
  LossMaker loss{};
};

// Declares a tensor of the batch without gradient: f32 features, or i32 tokens, lengths or
// positions.
Node input(const std::string& name, const Shape& example);
Node token_input(const std::string& name, const Shape& example);

// Parts.

/// Declares a part that runs one module: part("video.cnn", "video", sequence({...})).
Node part(const ModuleName& name, const std::string& reads, ModuleMaker make);
/// Declares a user-defined part that reads several tensors.
Node part(const ModuleName& name, std::vector<std::string> reads, PartMaker make);

enum class ConcatAxis { kTokens, kChannels };
/// Concatenates tokens (B, N, C) along N, or (…, C) along the channels.
Node concatenate(const ModuleName& name, std::vector<std::string> reads,
                 ConcatAxis along = ConcatAxis::kTokens);
/// Adds tensors of the same shape, in order.
Node sum(const ModuleName& name, std::vector<std::string> reads);

/// Settings of a transformer over tokens (B, N, C): pre-norm blocks of attention and a perceptron.
struct Transformer {
  std::int64_t layers = 1;
  int heads = 4;
  std::int64_t intermediate_size = 0;  // inner width of the perceptron; 0 for 4·C
  bool causal = false;                 // tokens attend only to earlier ones
  float score_scale = 0;               // scale of self-attention's scores; 0: 1/√(C/heads)
  /// T5's relative position bias of self-attention, shared by all layers; none: disabled.
  std::optional<RelativeBuckets> relative{};
  float dropout = 0;
  NormSpec norm{};
  bool final_norm = true;  // after the last block, "<name>.ln_f"
  std::string source{};    // tensor (B, S, any) that each block also attends to; "": none
  std::string lengths{};   // (1) i32 per example, valid tokens of the source; "": all
  /// Tensor of positions in documents, (N) i32; tokens attend only within their document. "": one
  /// document.
  std::string positions{};
};
/// Declares a pre-norm transformer. Weights "<name>.h.0.attn.…", "cross", "mlp", and
/// "<name>.relative.weight".
Node transformer(const ModuleName& name, const std::string& reads, const Transformer& spec);

/// Inputs of a LayerMaker: sizes and shared tensors of the branches, which may attend to `source`.
struct LayerInputs {
  std::int64_t width, tokens;               // C, N
  std::shared_ptr<EncoderOutput> source{};  // or null
  std::int64_t source_width = 0, source_tokens = 0;
  std::shared_ptr<RelativeBias> relative{};  // shared by all layers, or null
};
using LayerMaker = std::function<LayerSpec(const LayerInputs& inputs)>;

/// Residual blocks with any branches, as an alternative to Transformer.
struct Stack {
  std::int64_t layers = 1;
  LayerMaker layer{};
  ResidualSpec residual{};  // its width is replaced with C
  ModuleName block{"h"};    // blocks are "<name>.h.0", …
  std::optional<ModuleName> final_norm = ModuleName("ln_f");
  std::optional<InitialDeviations> deviations{};  // none: derived from C and the depth
  std::optional<RelativeBias::Spec> relative{};   // "<name>.relative", for LayerInputs; none: null
  std::string source{}, lengths{}, positions{};   // as in Transformer
};
Node stack(const ModuleName& name, const std::string& reads, const Stack& spec);

// Modules for `part`. Input sizes are inferred.

/// Runs modules one after another: "<name>.0.…", "<name>.1.…".
ModuleMaker sequence(std::vector<ModuleMaker> modules);
/// Adds x to the output of the modules.
ModuleMaker residual(std::vector<ModuleMaker> modules);

ModuleMaker linear(std::int64_t outputs, bool bias = true);
struct ConvolutionSpec {
  std::int64_t outputs = 0;
  kernels::Window window{};
  std::int64_t groups = 1;
  bool bias = true;
};
/// Makes a convolution over the one to three spatial dimensions of the input.
ModuleMaker convolution(const ConvolutionSpec& spec);
/// Returns a window of `size` positions, odd, centered on every `stride`-th position.
kernels::Window around(std::int64_t size, const kernels::SpatialSizes& stride = {1, 1, 1});
ModuleMaker group_norm(std::int64_t groups, float epsilon = 1e-5f);
ModuleMaker norm(const NormSpec& spec = {});
ModuleMaker activation(kernels::ActivationKind kind);
ModuleMaker max_pooling(const kernels::Window& window);
ModuleMaker mean_pooling(const kernels::Window& window,
                         kernels::Divisor divisor = kernels::Divisor::kWindow);
ModuleMaker upsampling(const kernels::SpatialSizes& factors,
                       kernels::Interpolation interpolation = kernels::Interpolation::kNearest);
/// Splits videos (T, H, W, C) into fragments of `frames` frames and applies the module to each
/// fragment. Its results (…, D) become the tokens (N, D) of the video.
ModuleMaker fragments(std::int64_t frames, ModuleMaker module);
/// Splits images or videos into patches and embeds each as a token (N, width).
ModuleMaker patches(std::int64_t width, const kernels::SpatialSizes& patch);
/// Embeds i32 tokens (N) with a table (vocabulary, width), "<name>.weight".
ModuleMaker embedding(std::int64_t vocabulary, std::int64_t width);
/// Adds a learned positional row of "<name>.weight" (N, C) to each token.
ModuleMaker positions();
/// Adds fixed sinusoidal positions, a frozen "<name>.weight", to the tokens.
ModuleMaker sinusoids();
/// Prepends `count` learned tokens, "<name>.weight" (count, C).
ModuleMaker class_tokens(std::int64_t count = 1);
/// Reshapes (D1, …, C) to tokens (N, C).
ModuleMaker tokens();
/// Reshapes (D1, …, C) to (D1·…·C).
ModuleMaker flatten();
/// Reshapes to `example`.
ModuleMaker reshape(const Shape& example);
/// Selects token `index` of the tokens (N, C), as (C).
ModuleMaker token(std::int64_t index);
/// Averages over all positions or tokens, giving (C).
ModuleMaker mean();

// Losses. Each is a mean. The network's loss is their sum, with factors `weight`.

struct CrossEntropy {
  double weight = 1;
  float smoothing = 0;  // PyTorch's label_smoothing; 0: Pass::label_smoothing
  /// Divides by the batch's number of valid targets (Batch::targets) instead of all targets.
  bool counts_targets = false;
};
/// Declares the cross entropy of logits (K) or (N, K) with i32 `targets`; ignores kNoTarget.
/// Measures: accuracy.
Node cross_entropy(const std::string& name, const std::string& logits, const std::string& targets,
                   const CrossEntropy& spec = {});
/// Declares the loss mean (x − y)² with f32 `targets`. Measures: absolute_error, squared_error,
/// target, target_square.
Node squared_error(const std::string& name, const std::string& predictions,
                   const std::string& targets, double weight = 1);
/// Declares a Huber loss: d²/2 if |d| ≤ delta, else delta·(|d| − delta/2).
Node huber(const std::string& name, const std::string& predictions, const std::string& targets,
           double weight = 1, float delta = 1);

/// Settings of detection on a grid of cells, each with at most one object. Predictions are (…, 5 +
/// classes): an objectness logit, four box coordinates, and class logits.
struct Detection {
  std::int64_t classes = 1;
  double weight = 1;
  float positive_weight = 1;  // weight of cells with an object in the binary cross entropy
  float box_weight = 1, class_weight = 1;
  float beta = 1;  // box loss: d²/(2·beta) if |d| < beta, else |d| − beta/2
};
/// Declares a detection loss, averaged over all cells. classes: (…) i32, kNoTarget for cells
/// without an object. boxes: (…, 4) f32. Measures: precision, recall, f1, box_error,
/// class_accuracy.
Node detection(const std::string& name, const std::string& predictions, const std::string& classes,
               const std::string& boxes, const Detection& spec = {});

}  // namespace hybrid_trainer::graph

namespace hybrid_trainer {

namespace graph {
class Plan;
}

/// A network built from a list of graph::Node. Runs the parts in order, backward in reverse order.
/// The gradients of a result that several parts read are summed in a fixed order.
class ModuleGraph final : public Network {
 public:
  /// Initializes weights from `seed`. Throws ConfigError if the list refers to an unknown entry.
  /// Throws ShapeMismatch, naming both parts, if shapes do not match.
  ModuleGraph(std::vector<graph::Node> nodes, std::uint64_t seed, const Stream& stream);
  ~ModuleGraph() override;

  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override;
  void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override;
  void visit_routings(const RoutingVisitor& visit) override;
  std::vector<std::string> parts() const override;
  /// Configures the parts whose names match patterns: "video.*" matches "video" and "video.cnn". A
  /// part's dtype takes effect for its weights at the next Parameter::compute_in.
  void set_parts(const std::vector<PartSettings>& settings) override;
  /// Returns "<loss>.loss" and the measures of each loss.
  std::vector<Measure> wait_for_measures(const Batch& batch, const Pass& pass,
                                         const Stream& stream) override;
  std::vector<NamedTensor> wait_for_predictions(const Batch& batch, const Pass& pass,
                                                const Stream& stream) override;
  double step_flops(const Batch& batch) override;
  double recomputed_flops(const Batch& batch, double share) override;

  /// Returns a part's result in an evaluation pass. Runs only the parts that it depends on.
  Tensor result_of(const std::string& part, const Batch& batch, const Pass& pass,
                   const Stream& stream);
  /// Returns the tensors of a batch: those that parts read, followed by targets.
  std::vector<graph::BatchTensor> batch_tensors() const;
  Batch empty_batch(const BatchForm& form, const Stream& stream) const override {
    return empty_batch(form.examples, stream);
  }
  /// Allocates a batch of `size` examples, uninitialized. `tokens_per_example`: see Batch.
  Batch empty_batch(std::int64_t size, const Stream& stream,
                    std::int64_t tokens_per_example = 1) const;

 private:
  std::unique_ptr<graph::Plan> plan_;
};

}  // namespace hybrid_trainer
