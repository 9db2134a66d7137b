#include <cmath>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/nn/mixers.h"
#include "hybrid_trainer/nn/parameter.h"
#include "src/nn/key_value_cache.h"

namespace hybrid_trainer {

namespace {

/// Computes rows[b, t, first : first + count] = table[positions[b, t]], or table[t] if `positions` is
/// undefined. Shapes: rows (B, T, any), table (P, count), positions (B, T) i32. Throws Error if
/// `positions` is undefined and P < T.
void write_position_rows(const Tensor& rows, std::int64_t first, const Parameter& table,
                         const Tensor& positions, const Stream& stream) {
  const std::int64_t count = table.shape()[1], batch = rows.size(0), time = rows.size(1);
  if (time > table.shape()[0] && !positions)
    throw Error(ExitCode::kConfig, concat(table.name(), " has rows for ", table.shape()[0],
                                          " positions, but a sequence has ", time, " tokens"));
  const Weight weight = table.acquire(rows.dtype(), stream);
  const Tensor to = rows.as_rows(), values = weight;
  if (positions) {
    const Tensor found =
        Tensor::empty({batch, time, count}, rows.dtype(), MemoryKind::kActivations, stream);
    kernels::embedding_forward(found, positions, values, Tensor{}, 0, stream);
    return kernels::copy_columns({to, first}, {found.as_rows(), 0}, count, stream);
  }
  for (std::int64_t b = 0; b < batch; ++b)
    kernels::copy_columns({to.rows(b * time, (b + 1) * time), first}, {values.rows(0, time), 0},
                          count, stream);
}

/// Adds columns [first, first + count) of drows, the gradient of the rows, to the table's gradient.
void add_position_gradient(Parameter& table, const Tensor& drows, std::int64_t first,
                           const Tensor& positions, const Stream& stream) {
  GradientContribution dtable(table, stream);
  if (!dtable.wanted()) return;
  const std::int64_t count = table.shape()[1], batch = drows.size(0), time = drows.size(1);
  const Tensor alone =
      Tensor::empty({batch, time, count}, drows.dtype(), MemoryKind::kActivations, stream);
  kernels::copy_columns({alone.as_rows(), 0}, {drows.as_rows(), first}, count, stream);
  const kernels::GradientMode mode = dtable.next_mode();
  if (positions)
    return kernels::embedding_backward(dtable.gradient(), mode, Tensor{}, mode, alone, positions,
                                       stream);
  if (mode == kernels::GradientMode::kOverwrite) fill_zero(dtable.gradient(), stream);
  kernels::bias_backward(dtable.gradient().rows(0, time).view({time * count}),
                         alone.view({batch, time * count}), kernels::GradientMode::kAccumulate,
                         stream);
}

kernels::StateSpaceSpec scan_of(const SemiseparableMixer::Spec& spec, bool backwards) {
  return {.heads = spec.heads,
          .head_size = spec.head_size,
          .groups = spec.heads,
          .state_size = spec.rank,
          .reversed = backwards,
          .shifted = backwards};
}

std::int64_t first_rows(const SemiseparableMixer::Spec& spec) {
  const kernels::StateSpaceSpec scan = scan_of(spec, false);
  if (spec.positions > 0) return scan.values();
  return scan.columns() + spec.heads * (spec.bidirectional ? 3 : 2);
}

}  // namespace

SemiseparableMixer::SemiseparableMixer(const ModuleName& name, const Spec& spec,
                                       const Stream& stream)
    : TwoProductBranch{Linear(name / "c_in", spec.width, first_rows(spec), stream, spec.biases),
                       Linear(name / "c_proj", spec.heads * spec.head_size, spec.width, stream,
                              spec.biases)},
      scan_(scan_of(spec, false)),
      back_(scan_of(spec, true)),
      taps_{.heads = spec.heads, .ahead = spec.bidirectional} {
  if (spec.positions > 0)
    tables_.emplace(Tables{Parameter(name / "factors.weight", {spec.positions, table_columns()},
                                     Role::kEmbedding, stream),
                           Parameter(name / "taps.weight", {spec.positions, tap_columns()},
                                     Role::kEmbedding, stream)});
  set_files(name, spec.files, {first_rows(spec)});
}

TokenFlops SemiseparableMixer::flops(std::int64_t) const {
  const double all = (taps_.ahead ? 2 : 1) * scan_flops_of(scan_) +
                     2 * static_cast<double>(scan_.values() * taps_.taps());
  return flops_with(all, kScanBackward);
}

SemiseparableMixer::Parts SemiseparableMixer::parts_of(const Tensor& product,
                                                       const Tensor& positions,
                                                       const Stream& stream) {
  const std::int64_t batch = product.size(0), time = product.size(1);
  const Tensor values = Tensor::empty({batch, time, scan_.columns()}, product.dtype(),
                                      MemoryKind::kActivations, stream);
  if (!tables_) {
    kernels::copy_columns({values.as_rows(), 0}, {product.as_rows(), 0}, scan_.columns(), stream);
    return {values, {product.as_rows(), scan_.columns()}};
  }
  kernels::copy_columns({values.as_rows(), 0}, {product.as_rows(), 0}, scan_.values(), stream);
  write_position_rows(values, scan_.values(), tables_->factors, positions, stream);
  const Tensor taps = Tensor::empty({batch, time, tap_columns()}, product.dtype(),
                                    MemoryKind::kActivations, stream);
  write_position_rows(taps, 0, tables_->taps, positions, stream);
  return {values, {taps.as_rows(), 0}};
}

Tensor SemiseparableMixer::multiplied(const Parts& parts, const BoundaryStates& ends,
                                      const Pass& pass, const Stream& stream) {
  const Tensor& values = parts.values;
  const auto scanned = [&](const kernels::StateSpaceSpec& scan) {
    Tensor y = Tensor::empty({values.size(0), values.size(1), scan_.values()}, values.dtype(),
                             MemoryKind::kActivations, stream);
    kernels::state_space_scan_forward(
        y, ends.last_state,
        {.values = values, .first_state = ends.first_state, .positions = pass.positions}, {}, scan,
        stream);
    return y;
  };
  kernels::TokenTapsInput input = taps_input(parts, pass);
  input.before = ends.value;
  input.low = scanned(scan_);
  if (taps_.ahead) input.more = scanned(back_);
  kernels::token_taps_forward(input.low, input, taps_, stream);
  return input.low;
}

Tensor SemiseparableMixer::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                                   const Stream& stream) {
  const Tensor product = first_.forward(x, tape, stream);
  const Tensor y = rebuild(product, tape.pass(), stream);
  tape.save({ActivationRole::kPreActivation, product, true}, stream);
  tape.declare_rebuildable(y, Rebuild::kAttended, product, *this);
  return projection_.forward(y, residual, tape, stream);
}

Tensor SemiseparableMixer::dvalues(const Tensor& dlow, const Parts& parts, const Pass& pass,
                                   const Stream& stream) {
  const kernels::StateSpaceInput input{.values = parts.values, .positions = pass.positions};
  const Tensor all = Tensor::empty_like(parts.values, MemoryKind::kActivations, stream);
  kernels::state_space_scan_backward({.values = all}, dlow, Tensor{}, input, {}, scan_, stream);
  if (!taps_.ahead) return all;
  const Tensor more = Tensor::empty_like(parts.values, MemoryKind::kActivations, stream);
  kernels::state_space_scan_backward({.values = more}, dlow, Tensor{}, input, {}, back_, stream);
  kernels::add(all, all, more, stream);
  return all;
}

Tensor SemiseparableMixer::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor dsum = projection_.backward(dy, tape, stream), product = tape.take(stream);
  const Pass& pass = tape.pass();
  const Parts parts = parts_of(product, pass.positions, stream);
  const kernels::TokenTapsInput input = taps_input(parts, pass);
  const Tensor dlow = Tensor::empty_like(dsum, MemoryKind::kActivations, stream);
  kernels::token_taps_backward(dlow, {}, {}, dsum, input, taps_, stream);
  const Tensor dall = dvalues(dlow, parts, pass, stream);
  const Tensor dproduct = Tensor::empty_like(product, MemoryKind::kActivations, stream);
  kernels::Columns dtaps{dproduct.as_rows(), scan_.columns()};
  if (tables_) dtaps = {Tensor::empty_like(parts.taps.rows, MemoryKind::kActivations, stream), 0};
  kernels::token_taps_backward(Tensor{}, {dall.as_rows(), 0}, dtaps, dsum, input, taps_, stream);
  kernels::copy_columns({dproduct.as_rows(), 0}, {dall.as_rows(), 0},
                        tables_ ? scan_.values() : scan_.columns(), stream);
  if (tables_) {
    add_position_gradient(tables_->factors, dall, scan_.values(), pass.positions, stream);
    add_position_gradient(tables_->taps, dtaps.rows.view({dy.size(0), dy.size(1), tap_columns()}),
                          0, pass.positions, stream);
  }
  return first_.backward(dproduct, tape, stream);
}

/// Stores x of the last token, which the next token needs.
void SemiseparableMixer::remember_value(const Tensor& kept, const Parts& parts,
                                        const Stream& stream) const {
  const Tensor rows = parts.values.as_rows();
  kernels::copy_columns({kept.view({1, scan_.values()}), 0},
                        {rows.rows(rows.size(0) - 1, rows.size(0)), 0}, scan_.values(), stream);
}

/// Decodes many tokens of one text in chunks; they begin the text or continue it.
Tensor SemiseparableMixer::decode_chunked(const Tensor& product, const DecodeTexts& texts,
                                          BranchState& state, const Pass& pass,
                                          const Stream& stream) {
  const bool begins = !texts.each;
  const std::int64_t text = begins ? texts.begun : *texts.alone;
  const auto& recurrent = dynamic_cast<RecurrentState&>(state);
  const Tensor first = recurrent.scan(text), value = recurrent.convolution(text);
  const Tensor last = Tensor::empty_like(first, MemoryKind::kActivations, stream);
  const Parts parts = parts_of(product, pass.positions, stream);
  const BoundaryStates ends =
      begins ? BoundaryStates{.last_state = last} : BoundaryStates{first, last, value};
  const Tensor y = multiplied(parts, ends, pass, stream);
  copy(first, last, stream);
  remember_value(value, parts, stream);
  return y;
}

Tensor SemiseparableMixer::decoded(const Tensor& product, const DecodeTexts& texts,
                                   BranchState& state, const Pass& pass, const Stream& stream) {
  if (!texts.each || (texts.alone && product.size(1) > kernels::kFewRows))
    return decode_chunked(product, texts, state, pass, stream);
  const auto& recurrent = dynamic_cast<RecurrentState&>(state);
  const std::int64_t batch = product.size(0), time = product.size(1);
  const Tensor y = Tensor::empty({batch, time, scan_.values()}, product.dtype(),
                                 MemoryKind::kActivations, stream);
  const Tensor rows = product.as_rows(), results = y.as_rows();
  const Tensor positions = pass.positions.view({batch * time});
  for_each_token(texts, batch, time, [&](std::int64_t begin, std::int64_t end, const Tensor& of) {
    const Tensor places = positions.rows(begin, end);
    const Parts parts = parts_of(rows.rows(begin, end).view({end - begin, 1, rows.size(1)}),
                                 places.view({end - begin, 1}), stream);
    const Tensor values = parts.values.as_rows(), to = results.rows(begin, end);
    kernels::state_space_scan_step(to, recurrent.scans(), values, Tensor{}, Tensor{}, {}, of, scan_,
                                   stream);
    kernels::token_taps_step(to, to, recurrent.convolutions(), {values, 0}, parts.taps, places, of,
                             taps_, stream);
  });
  return y;
}

Tensor SemiseparableMixer::decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                                  BranchState* state, const Pass& pass, const Stream& stream) {
  if (taps_.ahead)
    throw Error(ExitCode::kConfig,
                "a bidirectional T + U·Vᵀ mixer cannot generate text, because each of its tokens "
                "depends on later ones; use it in an encoder, or a causal one");
  ForwardOnlyTape tape(pass);
  const Tensor product = first_.forward(x, tape, stream);
  return projection_.product(decoded(product, texts, *state, pass, stream), residual, pass, stream);
}

std::unique_ptr<BranchState> SemiseparableMixer::make_state(DecodeCapacity room, DType dtype,
                                                            const Stream& stream) const {
  if (taps_.ahead) return nullptr;
  return std::make_unique<RecurrentState>(
      Shape{room.texts, 1, scan_.values()},
      Shape{room.texts, scan_.heads, scan_.head_size, scan_.state_size}, dtype, stream);
}

/// Initializes tables so that u·v has standard deviation 1/√rank: smaller products learn slowly.
void SemiseparableMixer::initialize(const InitialDeviations& deviations, std::uint64_t seed,
                                    const Stream& stream) {
  TwoProductBranch::initialize(deviations, seed, stream);
  if (!tables_) return;
  const double rank = static_cast<double>(scan_.state_size);
  initialize_normal(tables_->factors, 1 / std::sqrt(rank), seed, stream);
  initialize_normal(tables_->taps, 0.5, seed, stream);
}

}  // namespace hybrid_trainer
