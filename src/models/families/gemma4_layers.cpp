#include "src/models/families/gemma4_layers.h"

#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "src/nn/key_value_cache.h"

namespace hybrid_trainer {

namespace {

struct ReadCache final : BranchState {
  explicit ReadCache(const KeyValueCache& read) : cache(read) {}
  void grow(std::int64_t, const Stream&) override {}
  void branch(std::span<const std::int64_t>, std::int64_t, const Stream&) override {}
  bool can_record() const override { return true; }
  const KeyValueCache& cache;
};

const KeyValueCache& cache_of(const BranchState& state) {
  if (const auto* const read = dynamic_cast<const ReadCache*>(&state)) return read->cache;
  return dynamic_cast<const KeyValueCache&>(state);
}

/// Norm without a gain: zeros are added to 1.
void norm_without_gain(const Tensor& x, const kernels::HeadRange& heads, std::int64_t head_size,
                       float epsilon, const Stream& stream) {
  kernels::rms_norm_heads_forward(
      x, heads, Tensor::zeros({head_size}, DType::kF32, MemoryKind::kWorkspace, stream),
      {epsilon, /*one_plus=*/true}, stream);
}

void norm_without_gain_backward(const Tensor& dx, const Tensor& x, const kernels::HeadRange& heads,
                                std::int64_t head_size, float epsilon, const Stream& stream) {
  const Tensor gain = Tensor::zeros({head_size}, DType::kF32, MemoryKind::kWorkspace, stream);
  const Tensor unread = Tensor::empty({head_size}, DType::kF32, MemoryKind::kWorkspace, stream);
  kernels::rms_norm_heads_backward(dx, unread, kernels::GradientMode::kOverwrite, x, heads, gain,
                                   {epsilon, /*one_plus=*/true}, stream);
}

float root(std::int64_t number) {
  return static_cast<float>(std::sqrt(static_cast<double>(number)));
}

}  // namespace

kernels::Columns SharedKeys::last_columns(const Tensor& rows) const {
  return {rows.as_rows(), rows.size(2) - columns_};
}

void SharedKeys::copy_to(const Tensor& qkv, const Stream& stream) const {
  require(qkv_.defined(), "shared keys: the layer that computes them must run first");
  kernels::copy_columns(last_columns(qkv), last_columns(qkv_), columns_, stream);
}

void SharedKeys::add_gradient(const Tensor& dqkv, const Stream& stream) {
  const bool is_first = !gradient_;
  if (is_first)
    gradient_ = Tensor::empty({dqkv.size(0), dqkv.size(1), columns_}, dqkv.dtype(),
                              MemoryKind::kActivations, stream);
  (is_first ? kernels::copy_columns : kernels::add_columns)(last_columns(gradient_),
                                                            last_columns(dqkv), columns_, stream);
}

void SharedKeys::take_gradient(const Tensor& dqkv, const Stream& stream) {
  if (gradient_)
    kernels::add_columns(last_columns(dqkv), last_columns(gradient_), columns_, stream);
  drop();
}

Gemma4Inputs::Gemma4Inputs(const Spec& spec, const Stream& stream)
    : spec_(spec),
      of_windows_(std::make_shared<SharedKeys>(spec.window_columns)),
      of_all_(std::make_shared<SharedKeys>(spec.full_columns)) {
  if (spec.input_width == 0) return;
  table_.emplace(ModuleName("wle.weight", "embed_tokens_per_layer.weight"),
                 Shape{spec.rows, columns()}, Role::kEmbedding, stream);
  projection_.emplace(ModuleName("wle.projection", "per_layer_model_projection"), spec.width,
                      columns(), stream, false);
  norm_ = make_norm({"wle.norm", "per_layer_projection_norm"}, spec.input_width,
                    {NormKind::kRootMeanSquare, spec.epsilon}, stream);
}

void Gemma4Inputs::initialize(const InitialDeviations& deviations, std::uint64_t seed,
                              const Stream& stream) {
  if (!table_) return;
  initialize_normal(*table_, deviations.embedding, seed, stream);
  initialize_normal(projection_->weight(), deviations.matrix, seed, stream);
}

void Gemma4Inputs::drop() {
  inputs_ = {}, gradient_ = {};
  of_windows_->drop();
  of_all_->drop();
}

void Gemma4Inputs::forward(const Tensor& tokens, const Tensor& x, ActivationTape& tape,
                           const Stream& stream) {
  drop();
  if (!table_) return;
  const MemoryLabel label("layer inputs");
  const std::int64_t rows = tokens.elements();
  const Tensor projected = projection_->forward(x, tape, stream);
  kernels::scale(projected, projected, 1 / root(spec_.width), stream);
  inputs_ = norm_->forward(projected.view({rows * spec_.layers, width()}), tape, stream);
  inputs_ = inputs_.view({rows, columns()});
  const Tensor of_tokens = Tensor::empty_like(projected, MemoryKind::kActivations, stream);
  kernels::embedding_forward(of_tokens, tokens, table_->acquire(x.dtype(), stream), Weight{}, 0,
                             stream);
  kernels::axpy(inputs_, inputs_, root(width()), of_tokens.view(inputs_.shape()), stream);
  kernels::scale(inputs_, inputs_, 1 / root(2), stream);
}

void Gemma4Inputs::backward(const Tensor& dx, const Tensor& tokens, ActivationTape& tape,
                            const Stream& stream) {
  const Tensor dinputs = gradient_;
  drop();
  if (!table_) return;
  const MemoryLabel label("layer inputs");
  require(dinputs.defined(), "layer inputs: no layer has run backward");
  kernels::scale(dinputs, dinputs, 1 / root(2), stream);
  const Shape shape{tokens.size(0), tokens.size(1), columns()};
  {
    GradientContribution dtable(*table_, stream);
    if (dtable.wanted()) {
      const Tensor drows = Tensor::empty_like(dinputs, MemoryKind::kActivations, stream);
      kernels::scale(drows, dinputs, root(width()), stream);
      const kernels::GradientMode mode = dtable.next_mode();
      kernels::embedding_backward(dtable.gradient(), mode, Tensor{}, mode, drows.view(shape),
                                  tokens, stream);
    }
  }
  const Tensor dprojected =
      norm_->backward(dinputs.view({dinputs.size(0) * spec_.layers, width()}), tape, stream);
  kernels::scale(dprojected, dprojected, 1 / root(spec_.width), stream);
  kernels::add(dx, dx, projection_->backward(dprojected.view(shape), tape, stream), stream);
}

void Gemma4Inputs::visit_parameters(const ParameterVisitor& visit) {
  if (!table_) return;
  visit(*table_);
  projection_->visit_parameters(visit);
  norm_->visit_parameters(visit);
}

void Gemma4Inputs::copy_to(const kernels::Columns& to, std::int64_t layer,
                           const Stream& stream) const {
  kernels::copy_columns(to, {inputs_, layer * width()}, width(), stream);
}

void Gemma4Inputs::put_gradient(const kernels::Columns& from, std::int64_t layer,
                                const Stream& stream) {
  if (!gradient_) gradient_ = Tensor::empty_like(inputs_, MemoryKind::kActivations, stream);
  kernels::copy_columns({gradient_, layer * width()}, from, width(), stream);
}

namespace {

std::int64_t product_heads(const Gemma4Attention::Spec& spec) {
  if (spec.keys == Gemma4Attention::Keys::kRead) return spec.heads.queries;
  return spec.heads.queries + (spec.keys_are_values ? 1 : 2) * spec.heads.keys;
}

}  // namespace

Gemma4Attention::Gemma4Attention(const ModuleName& name, const Spec& spec, const Stream& stream)
    : TwoProductBranch{Linear(name / "c_attn", spec.width, product_heads(spec) * spec.head_size,
                              stream, spec.biases),
                       Linear(name / "c_proj", spec.heads.queries * spec.head_size, spec.width,
                              stream, spec.biases)},
      spec_(spec),
      query_norm_(rms_norm_gain(name / "q_norm", spec.head_size, spec.norm, stream)) {
  spec_.heads.scale = 1;
  ProductFiles files{.first = {"q_proj", "k_proj", "v_proj"}, .last = "o_proj"};
  if (spec.keys_are_values) files.first.resize(2);
  if (reads()) files.first.resize(1);
  const std::int64_t keys = columns(spec.heads.keys);
  set_files(name, files, {columns(spec.heads.queries), keys, keys});
  first_.weight().set_blocks(product_heads(spec));
  if (!reads())
    key_norm_.emplace(rms_norm_gain(name / "k_norm", spec.head_size, spec.norm, stream));
}

Tensor Gemma4Attention::assembled(const Tensor& product, const Stream& stream) const {
  const std::int64_t columns_of_keys = columns(spec_.heads.keys);
  const Tensor qkv = Tensor::empty({product.size(0), product.size(1), columns(spec_.heads.all())},
                                   product.dtype(), MemoryKind::kActivations, stream);
  kernels::copy_columns({qkv.as_rows(), 0}, {product.as_rows(), 0}, product.size(2), stream);
  if (reads()) {
    spec_.shared->copy_to(qkv, stream);
  } else if (spec_.keys_are_values) {
    kernels::copy_columns({qkv.as_rows(), product.size(2)},
                          {product.as_rows(), columns(spec_.heads.queries)}, columns_of_keys,
                          stream);
  }
  return qkv;
}

void Gemma4Attention::rotate(const Tensor& qkv, const RotaryTable::Angles& angles, const Pass& pass,
                             kernels::Rotation rotation, const Stream& stream) const {
  const std::int64_t heads = spec_.heads.queries + (reads() ? 0 : spec_.heads.keys);
  kernels::rotate(qkv, {heads, spec_.head_size}, angles.table, 0, pass.positions, rotation, stream);
}

Tensor Gemma4Attention::prepared(const Tensor& product, const RotaryTable::Angles& angles,
                                 const Pass& pass, const Stream& stream) const {
  Tensor qkv = assembled(product, stream);
  const std::int64_t queries = spec_.heads.queries, keys = spec_.heads.keys;
  kernels::rms_norm_heads_forward(qkv, {0, queries}, query_norm_.acquire_master(stream), spec_.norm,
                                  stream);
  if (!reads()) {
    kernels::rms_norm_heads_forward(qkv, {queries, keys}, key_norm_->acquire_master(stream),
                                    spec_.norm, stream);
    norm_without_gain(qkv, {queries + keys, keys}, spec_.head_size, spec_.norm.epsilon, stream);
  }
  rotate(qkv, angles, pass, kernels::Rotation::kForward, stream);
  return qkv;
}

void Gemma4Attention::prepare_backward(const Tensor& dqkv, const Tensor& product,
                                       const RotaryTable::Angles& angles, const Pass& pass,
                                       const Stream& stream) {
  rotate(dqkv, angles, pass, kernels::Rotation::kBackward, stream);
  const Tensor from = assembled(product, stream);
  const std::int64_t queries = spec_.heads.queries, keys = spec_.heads.keys;
  const auto part = [&](Parameter& gain, const kernels::HeadRange& heads) {
    GradientContribution dgain(gain, stream);
    kernels::rms_norm_heads_backward(dqkv, dgain.gradient_or_scratch(), dgain.next_mode(), from,
                                     heads, gain.acquire_master(stream), spec_.norm, stream);
  };
  part(query_norm_, {0, queries});
  if (reads()) return;
  part(*key_norm_, {queries, keys});
  norm_without_gain_backward(dqkv, from, {queries + keys, keys}, spec_.head_size,
                             spec_.norm.epsilon, stream);
}

Tensor Gemma4Attention::product_gradient(const Tensor& dqkv, const Stream& stream) const {
  const std::int64_t count = first_.weight().shape()[0];
  if (count == dqkv.size(2)) return dqkv;
  const Tensor dproduct = Tensor::empty({dqkv.size(0), dqkv.size(1), count}, dqkv.dtype(),
                                        MemoryKind::kActivations, stream);
  kernels::copy_columns({dproduct.as_rows(), 0}, {dqkv.as_rows(), 0}, count, stream);
  if (!reads())
    kernels::add_columns({dproduct.as_rows(), columns(spec_.heads.queries)},
                         {dqkv.as_rows(), count}, columns(spec_.heads.keys), stream);
  return dproduct;
}

Tensor Gemma4Attention::attended(const Tensor& qkv, const Tensor& log_sum_exp, const Pass& pass,
                                 const Stream& stream) const {
  Tensor y = Tensor::empty({qkv.size(0), qkv.size(1), columns(spec_.heads.queries)}, qkv.dtype(),
                           MemoryKind::kActivations, stream);
  kernels::attention_forward(y, log_sum_exp, qkv, pass.positions, spec_.heads, stream);
  return y;
}

Tensor Gemma4Attention::rebuild(const Tensor& source, const Pass& pass, const Stream& stream) {
  const RotaryTable::Angles turns = angles(source.size(1), pass, stream);
  return attended(prepared(source, turns, pass, stream), Tensor{}, pass, stream);
}

Tensor Gemma4Attention::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                                const Stream& stream) {
  const Pass& pass = tape.pass();
  const Tensor product = first_.forward(x, tape, stream);
  const Tensor qkv = prepared(product, angles(x.size(1), pass, stream), pass, stream);
  if (spec_.keys == Keys::kOwnAndShared) spec_.shared->set(qkv);
  Tensor log_sum_exp;
  if (tape.keeps())
    log_sum_exp = Tensor::empty({x.size(0), spec_.heads.queries, x.size(1)}, DType::kF32,
                                MemoryKind::kActivations, stream);
  const Tensor y = attended(qkv, log_sum_exp, pass, stream);
  tape.save({ActivationRole::kQueriesKeysValues, product, true}, stream);
  tape.declare_rebuildable(y, Rebuild::kAttended, product, *this);
  tape.save({ActivationRole::kAttentionOutput, y}, stream);
  tape.save({ActivationRole::kStatistics, log_sum_exp}, stream);
  return projection_.forward(y, residual, tape, stream);
}

Tensor Gemma4Attention::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor dattended = projection_.backward(dy, tape, stream);
  const Tensor log_sum_exp = tape.take(stream), y = tape.take(stream), product = tape.take(stream);
  const Pass& pass = tape.pass();
  const RotaryTable::Angles turns = angles(dy.size(1), pass, stream);
  const Tensor qkv = prepared(product, turns, pass, stream);
  const Tensor dqkv = Tensor::empty_like(qkv, MemoryKind::kActivations, stream);
  kernels::attention_backward(dqkv, dattended, y, log_sum_exp, qkv, pass.positions, spec_.heads,
                              stream);
  if (reads()) spec_.shared->add_gradient(dqkv, stream);
  if (spec_.keys == Keys::kOwnAndShared) spec_.shared->take_gradient(dqkv, stream);
  prepare_backward(dqkv, product, turns, pass, stream);
  return first_.backward(product_gradient(dqkv, stream), tape, stream);
}

Tensor Gemma4Attention::decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                               BranchState* state, const Pass& pass, const Stream& stream) {
  const KeyValueCache& cache = cache_of(*state);
  ForwardOnlyTape tape(pass);
  const RotaryTable::Angles turns = texts.each ? spec_.rotary->by_step(cache.keys.size(1), stream)
                                               : angles(x.size(1), pass, stream);
  const Tensor product = first_.forward(x, tape, stream);
  const Tensor qkv = prepared(product, turns, pass, stream);
  if (spec_.keys == Keys::kOwnAndShared) spec_.shared->set(qkv);
  const Tensor y = Tensor::empty({x.size(0), x.size(1), columns(spec_.heads.queries)}, x.dtype(),
                                 MemoryKind::kActivations, stream);
  // Layers that read shared keys write the same values to the cache again.
  cache.attend(y, qkv, texts, pass, spec_.heads, stream);
  return projection_.product(y, residual, pass, stream);
}

std::unique_ptr<BranchState> Gemma4Attention::make_state(DecodeCapacity room, DType dtype,
                                                         const Stream& stream) const {
  if (reads()) return std::make_unique<ReadCache>(*spec_.shared->cache());
  auto cache = std::make_unique<KeyValueCache>(room, columns(spec_.heads.keys), dtype, stream);
  if (spec_.keys == Keys::kOwnAndShared) spec_.shared->set_cache(cache.get());
  return cache;
}

TokenFlops Gemma4Attention::flops(std::int64_t time) const {
  const auto inner = static_cast<double>(columns(spec_.heads.queries));
  return flops_with(4 * kernels::visible_keys(spec_.heads, time) * inner, 2);
}

void Gemma4Attention::visit_parameters(const ParameterVisitor& visit) {
  first_.visit_parameters(visit);
  visit(query_norm_);
  if (key_norm_) visit(*key_norm_);
  projection_.visit_parameters(visit);
}

Gemma4LayerEnd::Gemma4LayerEnd(const ModuleName& name, const Spec& spec, const Stream& stream)
    : inputs_(spec.inputs),
      layer_(spec.inputs->next_layer()),
      scalar_(name / ModuleName("scalar", "layer_scalar"), {1}, Role::kVector, stream) {
  initialize_constant(scalar_, 1.0f, stream);
  const std::int64_t width = inputs_->width();
  if (width == 0) return;
  gate_.emplace(name / ModuleName("c_gate", "per_layer_input_gate"), spec.width, width, stream,
                false);
  projection_.emplace(name / ModuleName("c_proj", "per_layer_projection"), width, spec.width,
                      stream, false);
  norm_ = make_norm(name / ModuleName("norm", "post_per_layer_input_norm"), spec.width,
                    {NormKind::kRootMeanSquare, spec.epsilon}, stream);
}

void Gemma4LayerEnd::initialize(const InitialDeviations& deviations, std::uint64_t seed,
                                const Stream& stream) {
  if (!gate_) return;
  initialize_normal(gate_->weight(), deviations.matrix, seed, stream);
  initialize_normal(projection_->weight(), deviations.projection, seed, stream);
}

Tensor Gemma4LayerEnd::from_input(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const std::int64_t width = inputs_->width();
  const Tensor gates = gate_->forward(x, tape, stream).as_rows();
  const std::int64_t rows = gates.size(0);
  const Tensor wide = Tensor::empty({rows, 2 * width}, x.dtype(), MemoryKind::kActivations, stream);
  kernels::copy_columns({wide, 0}, {gates, 0}, width, stream);
  inputs_->copy_to({wide, width}, layer_, stream);
  const Tensor active = Tensor::empty({rows, width}, x.dtype(), MemoryKind::kActivations, stream);
  kernels::gated_forward(active, wide, kernels::Gate::kGelu, stream);
  tape.save({ActivationRole::kPreActivation, wide, true}, stream);
  return norm_->forward(projection_->forward(active, tape, stream), tape, stream).view(x.shape());
}

Tensor Gemma4LayerEnd::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                               const Stream& stream) {
  require(residual.defined(), "layers of Gemma 4 do not support dropout");
  Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  const Weight scalar = scalar_.acquire_master(stream);
  if (!gate_) {
    kernels::scale_by(y, residual, scalar, stream);
    return y;
  }
  kernels::add(y, residual, from_input(x, tape, stream), stream);
  kernels::scale_by(y, y, scalar, stream);
  return y;
}

Tensor Gemma4LayerEnd::input_backward(const Tensor& dy, ActivationTape& tape,
                                      const Stream& stream) {
  const std::int64_t width = inputs_->width();
  const Tensor dactive =
      projection_->backward(norm_->backward(dy.as_rows(), tape, stream), tape, stream);
  const Tensor wide = tape.take(stream);
  kernels::gated_backward(wide, dactive, wide, kernels::Gate::kGelu, stream);
  inputs_->put_gradient({wide, width}, layer_, stream);
  const Tensor dgates =
      Tensor::empty({dy.size(0), dy.size(1), width}, dy.dtype(), MemoryKind::kActivations, stream);
  kernels::copy_columns({dgates.as_rows(), 0}, {wide, 0}, width, stream);
  return gate_->backward(dgates, tape, stream);
}

/// Returns the gradient of x minus dy, which the residual stream adds.
Tensor Gemma4LayerEnd::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  {
    // 0: a buffer in transformers, which is not trained
    GradientContribution dscalar(scalar_, stream);
    if (dscalar.wanted() && dscalar.next_mode() == kernels::GradientMode::kOverwrite)
      fill_zero(dscalar.gradient(), stream);
  }
  const Tensor dsum = Tensor::empty_like(dy, MemoryKind::kActivations, stream);
  kernels::scale_by(dsum, dy, scalar_.acquire_master(stream), stream);
  Tensor dx = gate_ ? input_backward(dsum, tape, stream) : Tensor{};
  if (dx) kernels::add(dsum, dsum, dx.view(dsum.shape()), stream);
  kernels::axpy(dsum, dsum, -1, dy, stream);
  return dsum;
}

TokenFlops Gemma4LayerEnd::flops(std::int64_t) const {
  return gate_ ? gate_->flops() + projection_->flops() : TokenFlops{};
}

KeptNumbers Gemma4LayerEnd::kept() const {
  KeptNumbers numbers{};
  if (gate_)
    numbers.fill(static_cast<double>(3 * inputs_->width() + projection_->weight().shape()[0]));
  return numbers;
}

void Gemma4LayerEnd::visit_parameters(const ParameterVisitor& visit) {
  if (gate_) {
    gate_->visit_parameters(visit);
    projection_->visit_parameters(visit);
    norm_->visit_parameters(visit);
  }
  visit(scalar_);
}

void Gemma4LayerEnd::visit_linears(const LinearVisitor& visit) {
  if (!gate_) return;
  visit(*gate_);
  visit(*projection_);
}

}  // namespace hybrid_trainer
