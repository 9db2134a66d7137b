#include <cmath>

#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/cross_attention.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "hybrid_trainer/nn/module_graph.h"
#include "hybrid_trainer/nn/residual_block.h"

namespace hybrid_trainer::graph {

namespace {

/// Indices of the inputs. Input 0 is the tokens; for all other inputs, 0 means that there is none.
struct StackReads {
  std::size_t source = 0, lengths = 0, positions = 0;
};

BlockStack::Spec blocks_of(const ModuleName& name, const Stack& spec, const LayerInputs& inputs) {
  BlockStack::Spec blocks{
      .name = name / spec.block,
      .layers = spec.layers,
      .layer = [&spec, &inputs](std::int64_t) { return spec.layer(inputs); },
      .residual = spec.residual,
      .first_site = hash_of_name(name.here) & 0xFFFFFFFFu};  // different from other parts' sites
  blocks.residual.width = inputs.width;
  if (spec.final_norm) blocks.final_norm = name / *spec.final_norm;
  return blocks;
}

/// Returns GPT-2's standard deviations. The residual stream's variance is the same at any depth.
InitialDeviations by_width(std::int64_t width, std::int64_t layers) {
  const double matrix = 0.55 / std::sqrt(static_cast<double>(width));
  return {.matrix = matrix, .projection = matrix / std::sqrt(2.0 * static_cast<double>(layers))};
}

class StackPart final : public Part {
 public:
  StackPart(const ModuleName& name, const Stack& spec, const LayerInputs& inputs,
            const StackReads& reads, const Stream& stream)
      : deviations_(spec.deviations ? *spec.deviations : by_width(inputs.width, spec.layers)),
        reads_(reads),
        source_(inputs.source),
        relative_(inputs.relative),
        blocks_(blocks_of(name, spec, inputs), stream) {}

  Tensor forward(PartInputs inputs, ActivationTape& tape, const Stream& stream) override {
    set_positions(inputs, tape);
    if (reads_.source > 0) set_source(inputs, inputs[reads_.source].tensor);
    Tensor y = blocks_.forward(inputs[0].tensor, tape, stream);
    if (reads_.source > 0) {
      tape.save({ActivationRole::kBlockInput, source_->values()}, stream);
      source_->drop();
    }
    return y;
  }

  std::vector<Tensor> backward(const Tensor& dy, PartInputs inputs, ActivationTape& tape,
                               const Stream& stream) override {
    set_positions(inputs, tape);
    if (reads_.source > 0) set_source(inputs, tape.take(stream));
    std::vector<Tensor> gradients(inputs.size());
    gradients[0] = blocks_.backward(dy, tape, stream);
    if (reads_.source > 0) {
      gradients[reads_.source] = source_->take_gradient();
      source_->drop();
    }
    return gradients;
  }

  void visit_parameters(const ParameterVisitor& visit) override {
    if (relative_) relative_->visit_parameters(visit);
    blocks_.visit_parameters(visit);
  }
  void visit_linears(const LinearVisitor& visit) override { blocks_.visit_linears(visit); }
  void visit_routings(const RoutingVisitor& visit) override { blocks_.visit_routings(visit); }
  void initialize(std::uint64_t seed, const Stream& stream) override {
    blocks_.initialize(deviations_, seed, stream);
  }
  TokenFlops flops(std::span<const Shape> inputs, const Shape&, bool) override {
    return blocks_.flops(inputs[0][1]) * static_cast<double>(inputs[0][1]);
  }
  double recomputed_flops(std::span<const Shape> inputs, const Shape&, double share) override {
    return blocks_.recomputed_flops(inputs[0][1], share) * static_cast<double>(inputs[0][1]);
  }
  bool recomputes_itself() const override { return true; }
  std::vector<std::string> patterns(const std::string& name) const override {
    std::vector<std::string> patterns = blocks_.patterns();
    if (blocks_.has_final_norm() || relative_) patterns.push_back(name + ".*");
    return patterns;
  }

 private:
  void set_positions(PartInputs inputs, ActivationTape& tape) const {
    tape.set_positions(reads_.positions > 0 ? inputs[reads_.positions].tensor : Tensor{});
  }
  void set_source(PartInputs inputs, Tensor values) {
    source_->set_requires_gradient(inputs[reads_.source].requires_gradient);
    source_->set(std::move(values), reads_.lengths > 0 ? inputs[reads_.lengths].tensor : Tensor{});
  }
  InitialDeviations deviations_;
  StackReads reads_;
  std::shared_ptr<EncoderOutput> source_;
  std::shared_ptr<RelativeBias> relative_;  // or null
  BlockStack blocks_;
};

void check_inputs(const ModuleName& name, std::span<const Shape> inputs, const StackReads& reads) {
  const auto refuse = [&](const Shape& got, const std::string& what) {
    throw ShapeMismatch(concat(name.here, ": ", got.text(), " is no ", what));
  };
  const Shape& x = inputs[0];
  if (x.rank() != 3) refuse(x, "(batch, tokens, channels)");
  if (reads.source > 0 && inputs[reads.source].rank() != 3)
    refuse(inputs[reads.source], "(batch, tokens, channels) to attend to");
  if (reads.lengths > 0 && !(inputs[reads.lengths] == Shape{1}))
    refuse(inputs[reads.lengths], "length of each source, (batch)");
  if (reads.positions > 0 && !(inputs[reads.positions] == Shape{1, x[1]}))
    refuse(inputs[reads.positions], concat("position of each token, (batch, ", x[1], ")"));
}

LayerSpec layer_of(const Transformer& spec, const LayerInputs& inputs) {
  const std::int64_t width = inputs.width, head_size = width / spec.heads;
  if (spec.heads < 1 || width % spec.heads != 0)
    throw ShapeMismatch(concat("its ", spec.heads, " heads do not divide ", width, " channels"));
  kernels::AttentionSpec heads(spec.heads);
  heads.scale = spec.score_scale;
  LayerSpec layer{{.name = "attn",
                   .norm = "ln_1",
                   .make = branch_of<Attention>({.width = width,
                                                 .heads = heads,
                                                 .head_size = head_size,
                                                 .bidirectional = !spec.causal,
                                                 .relative = inputs.relative})}};
  if (inputs.source)
    layer.push_back({.name = "cross",
                     .norm = "ln_cross",
                     .make = branch_of<CrossAttention>({.width = width,
                                                        .source_width = inputs.source_width,
                                                        .heads = spec.heads,
                                                        .head_size = head_size,
                                                        .source = inputs.source,
                                                        .source_length = inputs.source_tokens,
                                                        .text_length = inputs.tokens})});
  const std::int64_t inner = spec.intermediate_size > 0 ? spec.intermediate_size : 4 * width;
  layer.push_back({.name = "mlp",
                   .norm = "ln_2",
                   .make = branch_of<FeedForward>({.width = width, .intermediate_size = inner})});
  return layer;
}

}  // namespace

Node stack(const ModuleName& name, const std::string& reads, const Stack& spec) {
  std::vector<std::string> all{reads};
  StackReads places;
  const auto add = [&](const std::string& input, std::size_t& place) {
    if (input.empty()) return;
    place = all.size();
    all.push_back(input);
  };
  add(spec.source, places.source);
  add(spec.lengths, places.lengths);
  add(spec.positions, places.positions);
  if (places.lengths > 0 && places.source == 0)
    throw ConfigError({concat(name.here, ": got lengths without their source, want both")});
  return part(name, std::move(all),
              [spec, places](const ModuleName& of, std::span<const Shape> inputs,
                             const Stream& stream) -> std::unique_ptr<Part> {
                check_inputs(of, inputs, places);
                LayerInputs layer{.width = inputs[0][2], .tokens = inputs[0][1]};
                if (places.source > 0) {
                  layer.source = std::make_shared<EncoderOutput>();
                  layer.source_width = inputs[places.source][2];
                  layer.source_tokens = inputs[places.source][1];
                }
                if (spec.relative)
                  layer.relative =
                      std::make_shared<RelativeBias>(of / "relative", *spec.relative, stream);
                return std::make_unique<StackPart>(of, spec, layer, places, stream);
              });
}

Node transformer(const ModuleName& name, const std::string& reads, const Transformer& spec) {
  Stack stacked{.layers = spec.layers,
                .layer = [spec](const LayerInputs& inputs) { return layer_of(spec, inputs); },
                .residual = {.norm = spec.norm, .dropout = spec.dropout},
                .source = spec.source,
                .lengths = spec.lengths,
                .positions = spec.positions};
  if (!spec.final_norm) stacked.final_norm.reset();
  if (spec.relative) stacked.relative = {.heads = spec.heads, .buckets = *spec.relative};
  return stack(name, reads, stacked);
}

}  // namespace hybrid_trainer::graph
