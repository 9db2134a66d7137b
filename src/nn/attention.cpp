
#include <algorithm>

#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/nn/attention.h"
#include "src/nn/key_value_cache.h"

namespace hybrid_trainer {

Tensor AttentionGate::without_gates(const Tensor& product, const Stream& stream) const {
  Tensor qkv = Tensor::empty({product.size(0), product.size(1), product.size(2) - columns_},
                             product.dtype(), MemoryKind::kActivations, stream);
  const Tensor to = qkv.as_rows(), from = product.as_rows();
  kernels::copy_columns({to, 0}, {from, 0}, columns_, stream);
  kernels::copy_columns({to, columns_}, {from, 2 * columns_}, to.size(1) - columns_, stream);
  return qkv;
}

Tensor AttentionGate::apply(const Tensor& y, const Tensor& product, const Stream& stream) const {
  Tensor result = Tensor::empty_like(y, MemoryKind::kActivations, stream);
  kernels::sigmoid_gate_forward(result.as_rows(), y.as_rows(), {product.as_rows(), columns_},
                                stream);
  return result;
}

void AttentionGate::backward(const Tensor& dproduct, const Tensor& dy, const Tensor& y,
                             const Tensor& product, const Stream& stream) const {
  const Tensor rows = dy.as_rows();
  kernels::sigmoid_gate_backward(rows, {dproduct.as_rows(), columns_}, rows, y.as_rows(),
                                 {product.as_rows(), columns_}, stream);
}

void AttentionGate::put_without_gates(const Tensor& dproduct, const Tensor& dqkv,
                                      const Stream& stream) const {
  const Tensor to = dproduct.as_rows(), from = dqkv.as_rows();
  kernels::copy_columns({to, 0}, {from, 0}, columns_, stream);
  kernels::copy_columns({to, 2 * columns_}, {from, columns_}, from.size(1) - columns_, stream);
}

/// If `whole` is set, treats all queries as one wide head, and all keys as another.
HeadNorms::HeadNorms(const ModuleName& name, const kernels::AttentionSpec& heads,
                     std::int64_t head_size, const kernels::RmsNormSpec& norm, bool whole,
                     const std::string& in_files, const Stream& stream)
    : norm_(norm),
      query_heads_{0, whole ? 1 : heads.queries},
      kv_heads_{whole ? heads.queries / heads.keys : heads.queries, whole ? 1 : heads.keys},
      queries_(rms_norm_gain(name / ModuleName("q_norm", "q_" + in_files),
                             (whole ? heads.queries : 1) * head_size, norm, stream)),
      keys_(rms_norm_gain(name / ModuleName("k_norm", "k_" + in_files),
                          (whole ? heads.keys : 1) * head_size, norm, stream)) {}

void HeadNorms::forward(const Tensor& qkv, const Stream& stream) {
  kernels::rms_norm_heads_forward(qkv, query_heads_, queries_.acquire_master(stream), norm_,
                                  stream);
  kernels::rms_norm_heads_forward(qkv, kv_heads_, keys_.acquire_master(stream), norm_, stream);
}

void HeadNorms::backward(const Tensor& dqkv, const Tensor& qkv, const Stream& stream) {
  const auto part = [&](Parameter& gain, const kernels::HeadRange& heads) {
    GradientContribution dgain(gain, stream);
    kernels::rms_norm_heads_backward(dqkv, dgain.gradient_or_scratch(), dgain.next_mode(), qkv,
                                     heads, gain.acquire_master(stream), norm_, stream);
  };
  part(queries_, query_heads_);
  part(keys_, kv_heads_);
}

HeadPreparation::HeadPreparation(const ModuleName& name, const Spec& spec, const Stream& stream)
    : query_heads_(spec.heads.queries),
      rotated_heads_(spec.heads.queries + spec.heads.keys),
      head_size_(spec.head_size),
      limit_(spec.limit),
      rotary_(spec.rotary) {
  if (spec.norm)
    norms_.emplace(name, spec.heads, head_size_, *spec.norm, spec.norms_all_heads,
                   spec.norm_in_files, stream);
}

/// Rotates queries and keys by their positions, and scales queries if their angles require it.
void HeadPreparation::rotate(const Tensor& qkv, const RotaryTable::Angles& angles, const Pass& pass,
                             kernels::Rotation rotation, const Stream& stream) const {
  if (!angles.table) return;
  const Tensor rows = angles.by_token ? qkv.view({1, qkv.size(0) * qkv.size(1), qkv.size(2)}) : qkv;
  kernels::rotate(rows, {rotated_heads_, head_size_, rotary_->pairs_are_adjacent()}, angles.table,
                  0, angles.by_token ? Tensor{} : pass.positions, rotation, stream);
  if (angles.query_scales)
    kernels::rotate(qkv, {query_heads_, head_size_}, angles.query_scales, 0, pass.positions,
                    rotation, stream);
}

void HeadPreparation::forward(const Tensor& qkv, const RotaryTable::Angles& angles,
                              const Pass& pass, const Stream& stream) {
  if (norms_) norms_->forward(qkv, stream);
  if (limit_ > 0) kernels::clip(qkv, qkv, limit_, stream);
  rotate(qkv, angles, pass, kernels::Rotation::kForward, stream);
}

void HeadPreparation::backward(const Tensor& dqkv, const Tensor& from,
                               const RotaryTable::Angles& angles, const Pass& pass,
                               const Stream& stream) {
  rotate(dqkv, angles, pass, kernels::Rotation::kBackward, stream);
  if (limit_ > 0) {
    const Tensor normed = Tensor::empty_like(from, MemoryKind::kActivations, stream);
    copy(normed, from, stream);
    if (norms_) norms_->forward(normed, stream);
    kernels::clip_backward(dqkv, dqkv, normed, limit_, stream);
  }
  if (norms_) norms_->backward(dqkv, from, stream);
}

namespace {

/// The same block of each of B matrices, (B, any, any).
struct Block {
  const Tensor& of;
  std::int64_t row, column;
  kernels::Columns rows(std::int64_t sequence, std::int64_t count) const {
    return {of.rows(sequence, sequence + 1).as_rows().rows(row, row + count), column};
  }
};

using BlockKernel = decltype(kernels::copy_columns);

/// Calls copy_columns or add_columns for each of the matrices.
void for_blocks(BlockKernel& kernel, const Block& to, const Block& from, std::int64_t rows,
                std::int64_t columns, const Stream& stream) {
  if (rows == 0) return;
  for (std::int64_t i = 0; i < to.of.size(0); ++i)
    kernel(to.rows(i, rows), from.rows(i, rows), columns, stream);
}

Tensor empty_rows(const Tensor& like, std::int64_t time, std::int64_t columns,
                  const Stream& stream) {
  return Tensor::empty({like.size(0), time, columns}, like.dtype(), MemoryKind::kActivations,
                       stream);
}

/// Returns c_attn's rows with a bias. Some models have no key bias, which would have no effect.
BiasRows biases_of(const Attention::Spec& spec) {
  if (!spec.biases || spec.key_bias) return spec.biases;
  const std::int64_t queries = (spec.gated ? 2 : 1) * spec.heads.queries * spec.head_size,
                     keys = spec.heads.keys * spec.head_size;
  return std::vector<RowRange>{{0, queries}, {queries + keys, queries + 2 * keys}};
}

}  // namespace

std::int64_t CarriedKeys::before(const Pass& pass) const {
  if (pass.carry == nullptr) return 0;
  const Tensor& rows = slot(pass).first.rows;
  return rows ? rows.size(1) : 0;
}

Tensor CarriedKeys::after_zero_rows(const Tensor& x, const Pass& pass, const Stream& stream) const {
  const std::int64_t count = before(pass), time = x.size(1);
  if (count == 0) return x;
  Tensor all = empty_rows(x, count + time, x.size(2), stream);
  for (std::int64_t i = 0; i < x.size(0); ++i)
    fill_zero(all.rows(i, i + 1).as_rows().rows(0, count), stream);
  for_blocks(kernels::copy_columns, {all, count, 0}, {x, 0, 0}, time, x.size(2), stream);
  return all;
}

Tensor CarriedKeys::own(const Tensor& joined, const Pass& pass, const Stream& stream) const {
  const std::int64_t count = before(pass), time = joined.size(1) - count;
  if (count == 0) return joined;
  Tensor rows = empty_rows(joined, time, joined.size(2), stream);
  for_blocks(kernels::copy_columns, {rows, 0, 0}, {joined, count, 0}, time, joined.size(2), stream);
  return rows;
}

Tensor CarriedKeys::joined(const Tensor& qkv, const Pass& pass, const Stream& stream) const {
  const Tensor all = after_zero_rows(qkv, pass, stream);
  if (const std::int64_t count = before(pass); count > 0)
    for_blocks(kernels::copy_columns, {all, 0, first_column()}, {slot(pass).first.rows, 0, 0},
               count, columns(), stream);
  if (pass.carry != nullptr && pass.carry->needs_last()) fill_last(all, pass, stream);
  return all;
}

void CarriedKeys::fill_last(const Tensor& joined, const Pass& pass, const Stream& stream) const {
  const std::int64_t time = joined.size(1), kept = std::min(heads_.window - 1, time);
  if (kept == 0) return;
  Tensor& rows = slot(pass).last.rows;
  rows = empty_rows(joined, kept, columns(), stream);
  for_blocks(kernels::copy_columns, {rows, 0, 0}, {joined, time - kept, first_column()}, kept,
             columns(), stream);
}

Pass CarriedKeys::joined(const Pass& pass, std::int64_t time, const Stream& stream) const {
  const std::int64_t count = before(pass);
  if (!pass.positions || count == 0) return pass;
  const std::int64_t begin = pass.carry->place().begin;
  const Tensor& all = pass.carry->place().positions;
  Pass joined = pass;
  joined.positions =
      Tensor::empty({all.size(0), count + time}, DType::kI32, MemoryKind::kActivations, stream);
  kernels::copy_columns({joined.positions, 0}, {all, begin - count}, count + time, stream);
  return joined;
}

Tensor CarriedKeys::backward(const Tensor& djoined, const Pass& pass, const Stream& stream) const {
  if (pass.carry == nullptr) return djoined;
  SegmentCarry::Slot& carried = slot(pass);
  if (const Tensor& drows = carried.dlast.rows; drows)
    for_blocks(kernels::add_columns, {djoined, djoined.size(1) - drows.size(1), first_column()},
               {drows, 0, 0}, drows.size(1), columns(), stream);
  const std::int64_t count = before(pass);
  if (count > 0) {
    carried.dfirst.rows = empty_rows(djoined, count, columns(), stream);
    for_blocks(kernels::copy_columns, {carried.dfirst.rows, 0, 0}, {djoined, 0, first_column()},
               count, columns(), stream);
  }
  return own(djoined, pass, stream);
}

Attention::Attention(const ModuleName& name, const Spec& spec, const Stream& stream)
    : TwoProductBranch{Linear(name / "c_attn", spec.width,
                              (spec.heads.all() + (spec.gated ? spec.heads.queries : 0)) *
                                  spec.head_size,
                              stream, biases_of(spec)),
                       Linear(name / "c_proj", spec.heads.queries * spec.head_size, spec.width,
                              stream, spec.output_bias)},
      heads_(spec.heads),
      relative_(spec.relative),
      head_size_(spec.head_size),
      preparation_(name,
                   {.heads = spec.heads,
                    .head_size = spec.head_size,
                    .norm = spec.query_key_norm,
                    .norms_all_heads = spec.norms_all_heads,
                    .norm_in_files = spec.norm_in_files,
                    .limit = spec.limit,
                    .rotary = spec.rotary},
                   stream),
      carried_(heads_, head_size_) {
  heads_.bidirectional = spec.bidirectional;
  heads_.pattern.key = philox({spec.pattern_seed, 0, hash_of_name(name.here)}, 0)[0];
  const std::int64_t keys = heads_.keys * head_size_;
  set_files(name, spec.files, {(spec.gated ? 2 : 1) * inner(), keys, keys});
  first_.weight().set_blocks(first_.weight().shape()[0] / head_size_);
  if (spec.gated) gate_.emplace(inner());
  if (spec.sinks) sinks_.emplace(name / "sinks", Shape{heads_.queries}, Role::kVector, stream);
  if (relative_) relative_->join(heads_.queries);
  require(!spec.gated || spec.taps == 0, "attention: gates cannot be combined with a convolution");
  if (spec.taps > 0)
    convolution_.emplace(
        name / "conv",
        TokenConvolution::Spec{
            .channels = first_.weight().shape()[0], .taps = spec.taps, .sum = {.silu = false}},
        stream);
}

/// Returns the gradient of the heads' output, given dy, and writes the gates' columns of dproduct.
Tensor Attention::gate_backward(const Tensor& dproduct, const Tensor& dy, const Tensor& y,
                                const Tensor& product, const Pass& pass, const Stream& stream) {
  Tensor dattention = gate_->apply(y, product, stream);  // its memory is reused after its last read
  {
    const Tensor rows = dattention.as_rows();
    const LinearGradients gradients(projection_, dy.as_rows(), rows, pass, stream);
    gradients.write_input_gradient(rows);
  }
  gate_->backward(dproduct, dattention, y, product, stream);
  return dattention;
}

Tensor Attention::attended(const Tensor& qkv, const Tensor& log_sum_exp, const Pass& pass,
                           const Stream& stream) const {
  Tensor y = Tensor::empty({qkv.size(0), qkv.size(1), inner()}, qkv.dtype(),
                           MemoryKind::kActivations, stream);
  kernels::attention_forward(y, log_sum_exp, qkv, pass.positions,
                             biased(qkv.size(1), stream).with_sinks(held_sinks(stream)), stream);
  return y;
}

Tensor Attention::rebuild(const Tensor& source, const Pass& pass, const Stream& stream) {
  if (!recomputes_qkv(pass)) return attended(source, Tensor{}, pass, stream);
  const std::int64_t time = source.size(1);
  const Pass all = carried_.joined(pass, time, stream);
  const Tensor qkv = prepared(source, angles(time, all, stream), all, false, stream);
  return carried_.own(attended(qkv, Tensor{}, all, stream), all, stream);
}

Tensor Attention::prepared(const Tensor& product, const RotaryTable::Angles& angles,
                           const Pass& pass, bool in_place, const Stream& stream) {
  Tensor qkv = joined(product, pass, stream);
  if (!in_place && qkv.raw() == product.raw()) {
    qkv = Tensor::empty_like(product, MemoryKind::kActivations, stream);
    copy(qkv, product, stream);
  }
  preparation_.forward(qkv, angles, pass, stream);
  return qkv;
}

/// Saves the product if it is normalized or gated, otherwise the prepared queries, keys and values.
Tensor Attention::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                          const Stream& stream) {
  const Tensor product = first_.forward(x, tape, stream);
  const Pass pass = carried_.joined(tape.pass(), x.size(1), stream);
  const bool in_place = !recomputes_qkv(pass) || !tape.keeps();
  const Tensor qkv = prepared(product, angles(x.size(1), pass, stream), pass, in_place, stream);
  Tensor log_sum_exp;
  if (tape.keeps())
    log_sum_exp = Tensor::empty({x.size(0), heads_.queries, qkv.size(1)}, DType::kF32,
                                MemoryKind::kActivations, stream);
  const Tensor y = carried_.own(attended(qkv, log_sum_exp, pass, stream), pass, stream);
  tape.save({ActivationRole::kQueriesKeysValues, product, true}, stream);
  tape.declare_rebuildable(y, Rebuild::kAttended, product, *this);
  tape.save({ActivationRole::kAttentionOutput, y}, stream);
  tape.save({ActivationRole::kStatistics, log_sum_exp}, stream);
  if (!gate_) return projection_.forward(y, residual, tape, stream);
  return projection_.product(gate_->apply(y, product, stream), residual, tape.pass(), stream);
}

void Attention::sinks_backward(const Tensor& dy, const Tensor& y, const Tensor& log_sum_exp,
                               const Stream& stream) {
  if (!sinks_) return;
  GradientContribution dsinks(*sinks_, stream);
  if (!dsinks.wanted()) return;
  kernels::attention_sinks_backward(dsinks.gradient(), dsinks.next_mode(), dy, y, log_sum_exp,
                                    held_sinks(stream), stream);
}

Tensor Attention::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  Tensor dattention = gate_ ? Tensor{} : projection_.backward(dy, tape, stream);
  const Tensor log_sum_exp = tape.take(stream), y = tape.take(stream), product = tape.take(stream);
  Tensor dproduct;
  if (gate_) {
    dproduct = Tensor::empty_like(product, MemoryKind::kActivations, stream);
    dattention = gate_backward(dproduct, dy, y, product, tape.pass(), stream);
  }
  const Pass pass = carried_.joined(tape.pass(), dy.size(1), stream);
  const RotaryTable::Angles turns = angles(dy.size(1), pass, stream);
  const Tensor qkv = recomputes_qkv(pass) ? prepared(product, turns, pass, false, stream) : product;
  const Tensor dqkv = Tensor::empty_like(qkv, MemoryKind::kActivations, stream);
  {
    const Tensor dout = carried_.after_zero_rows(dattention, pass, stream),
                 out = carried_.after_zero_rows(y, pass, stream);
    const kernels::AttentionSpec heads = biased(qkv.size(1), stream);
    kernels::attention_backward(dqkv, dout, out, log_sum_exp, qkv, pass.positions, heads, stream);
    if (relative_)
      relative_->backward({dout, out, log_sum_exp, qkv, pass.positions}, heads, stream);
    sinks_backward(dout, out, log_sum_exp, stream);
  }
  preparation_.backward(dqkv, preparation_.changes() ? joined(product, pass, stream) : Tensor{},
                        turns, pass, stream);
  const Tensor down = carried_.backward(dqkv, pass, stream);
  if (convolution_) {
    dproduct = Tensor::empty_like(product, MemoryKind::kActivations, stream);
    convolution_->backward(dproduct, {}, down, product, {}, pass, stream);
  } else if (gate_) {
    gate_->put_without_gates(dproduct, down, stream);
  }
  return first_.backward(convolution_ || gate_ ? dproduct : down, tape, stream);
}

Tensor Attention::decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                         BranchState* state, const Pass& pass, const Stream& stream) {
  if (heads_.bidirectional)
    throw Error(ExitCode::kConfig,
                "bidirectional attention cannot generate text, because each of its tokens depends "
                "on later ones; use it in an encoder, as with objective masked");
  const auto& cache = dynamic_cast<const KeyValueCache&>(*state);
  const std::int64_t batch = x.size(0), time = x.size(1);
  ForwardOnlyTape tape(pass);
  const RotaryTable::Angles turns = preparation_.rotary() != nullptr && texts.each
                                        ? preparation_.rotary()->by_step(cache.keys.size(1), stream)
                                        : angles(time, pass, stream);
  const Tensor product = first_.forward(x, tape, stream);
  const Tensor qkv = convolution_ ? convolution_->decode(product, texts, cache.rows, pass, stream)
                                  : plain(product, pass, stream);
  preparation_.forward(qkv, turns, pass, stream);
  const Tensor y =
      Tensor::empty({batch, time, inner()}, x.dtype(), MemoryKind::kActivations, stream);
  cache.attend(y, qkv, texts, pass,
               biased(cache.keys.size(1), stream).with_sinks(held_sinks(stream)), stream);
  return projection_.product(gate_ ? gate_->apply(y, product, stream) : y, residual, pass, stream);
}

std::unique_ptr<BranchState> Attention::make_state(DecodeCapacity room, DType dtype,
                                                   const Stream& stream) const {
  auto cache = std::make_unique<KeyValueCache>(room, heads_.keys * head_size_, dtype, stream);
  if (convolution_)
    cache->rows = Tensor::zeros(convolution_->state_shape(room.texts), dtype,
                                MemoryKind::kActivations, stream);
  return cache;
}

void Attention::visit_parameters(const ParameterVisitor& visit) {
  first_.visit_parameters(visit);
  if (convolution_) convolution_->visit_parameters(visit);
  preparation_.visit_parameters(visit);
  if (sinks_) visit(*sinks_);
  projection_.visit_parameters(visit);
}

}  // namespace hybrid_trainer
