#include "hybrid_trainer/nn/cross_attention.h"

namespace hybrid_trainer {

void EncoderOutput::add_gradient(const Tensor& part, const Stream& stream) {
  if (!gradient_) {
    gradient_ = part;
  } else {
    kernels::add(gradient_, gradient_, part, stream);
  }
}

namespace {

struct SourceState final : BranchState {
  Tensor keys_values;
  std::int64_t version = -1;  // version of the encoder output that was used
  void grow(std::int64_t, const Stream&) override {}
  void branch(std::span<const std::int64_t>, std::int64_t, const Stream&) override {}
};

ProductFiles files_of_queries(ProductFiles files) {
  if (files.first.empty()) return files;
  require(files.first.size() == 3,
          "cross attention: want three parts of the files: queries, keys, values");
  files.first.resize(1);
  return files;
}

BiasRows biases_of_keys_and_values(const CrossAttention::Spec& spec) {
  const std::int64_t keys = spec.heads.keys * spec.head_size;
  if (!spec.biases || spec.key_bias) return spec.biases;
  return std::vector<RowRange>{{keys, 2 * keys}};
}

}  // namespace

CrossAttention::CrossAttention(const ModuleName& name, const Spec& spec, const Stream& stream)
    : TwoProductBranch{Linear(name / "c_q", spec.width, spec.heads.queries * spec.head_size, stream,
                              spec.biases),
                       Linear(name / "c_proj", spec.heads.queries * spec.head_size, spec.width,
                              stream, spec.output_bias)},
      name_(name.here),
      heads_(spec.heads),
      head_size_(spec.head_size),
      source_keys_(name / "c_kv", spec.source_width > 0 ? spec.source_width : spec.width,
                   2 * spec.heads.keys * spec.head_size, stream, biases_of_keys_and_values(spec)),
      source_(spec.source),
      source_length_(spec.source_length),
      text_length_(spec.text_length) {
  require(source_ != nullptr, "cross attention: the encoder's output is missing");
  const std::int64_t queries = heads_.queries * head_size_, keys = heads_.keys * head_size_;
  set_files(name, files_of_queries(spec.files), {queries});
  if (!spec.files.first.empty())
    source_keys_.set_in_files(
        {(name / spec.files.first[1]).in_files, (name / spec.files.first[2]).in_files},
        {keys, keys}, spec.files.transposed);
  first_.weight().set_blocks(heads_.queries);
  source_keys_.weight().set_blocks(2 * heads_.keys);
}

const Tensor& CrossAttention::checked_source() const {
  const Tensor& values = source_->values();
  const std::int64_t wanted = source_keys_.weight().shape()[1];
  if (!values)
    throw Error(ExitCode::kInternal,
                concat(name_, ": the encoder's output is not set; encode a source first"));
  if (values.shape().rank() == 3 && values.size(2) == wanted) return values;
  throw ShapeMismatch(concat(name_, ": the encoder's output is ", values.shape().text(), ", ",
                             source_keys_.weight().name(), " is ",
                             source_keys_.weight().shape().text(), "; want (batch, length, ",
                             wanted, ")"));
}

void CrossAttention::check_batch(const Tensor& x, const Tensor& source) const {
  if (x.size(0) == source.size(0)) return;
  throw ShapeMismatch(concat(name_, ": x is ", x.shape().text(), ", the encoder's output is ",
                             source.shape().text(), "; want the same number of sequences in both"));
}

Tensor CrossAttention::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                               const Stream& stream) {
  check_batch(x, checked_source());
  const Tensor q = first_.forward(x, tape, stream),
               kv = keys_values(pass_of_source(tape.pass(), x), stream);
  const Tensor y = Tensor::empty_like(q, MemoryKind::kActivations, stream);
  Tensor log_sum_exp;
  if (tape.keeps())
    log_sum_exp = Tensor::empty({x.size(0), heads_.queries, x.size(1)}, DType::kF32,
                                MemoryKind::kActivations, stream);
  kernels::cross_attention_forward(y, log_sum_exp, q, kv, source_->lengths(), heads_, stream);
  tape.save({ActivationRole::kQueriesKeysValues, q, true}, stream);
  tape.declare_rebuildable(kv, Rebuild::kAttended, q, *this);
  tape.save({ActivationRole::kQueriesKeysValues, kv, true}, stream);
  tape.save({ActivationRole::kAttentionOutput, y}, stream);
  tape.save({ActivationRole::kStatistics, log_sum_exp}, stream);
  return projection_.forward(y, residual, tape, stream);
}

Tensor CrossAttention::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor dattended = projection_.backward(dy, tape, stream);
  const Tensor log_sum_exp = tape.take(stream), y = tape.take(stream), kv = tape.take(stream),
               q = tape.take(stream);
  const Tensor dq = Tensor::empty_like(q, MemoryKind::kActivations, stream);
  {
    const Tensor dkv = Tensor::empty_like(kv, MemoryKind::kActivations, stream);
    kernels::cross_attention_backward(dq, dkv, dattended, y, log_sum_exp, q, kv, source_->lengths(),
                                      heads_, stream);
    source_backward(dkv, pass_of_source(tape.pass(), q), stream);
  }
  return first_.backward(dq, tape, stream);
}

/// Contributes the gradients of the source and of the product that makes keys and values. The
/// source is not on the tape: the encoder's output keeps it until backward ends, for recomputed
/// layers.
void CrossAttention::source_backward(const Tensor& dkeys_values, const Pass& of_source,
                                     const Stream& stream) {
  const Tensor& source = checked_source();
  const LinearGradients gradients(source_keys_, dkeys_values.as_rows(),
                                  source_keys_.kept(source).as_rows(), of_source, stream);
  if (!source_->requires_gradient()) return;
  const Tensor dsource = Tensor::empty_like(source, MemoryKind::kActivations, stream);
  gradients.write_input_gradient(dsource.as_rows());
  source_->add_gradient(dsource, stream);
}

Tensor CrossAttention::decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                              BranchState* state, const Pass& pass, const Stream& stream) {
  auto& kept = dynamic_cast<SourceState&>(*state);
  if (kept.version != source_->version()) {
    kept.keys_values = {};
    kept.keys_values = keys_values(pass, stream);
    kept.version = source_->version();
  }
  ForwardOnlyTape tape(pass);
  const Tensor q = first_.forward(x, tape, stream);
  const Tensor y = Tensor::empty_like(q, MemoryKind::kActivations, stream);
  const std::int64_t together = source_->texts_per_source();
  if (texts.each) {
    kernels::cross_attention_decode(y.as_rows(), q.as_rows(), kept.keys_values, texts.each,
                                    together, source_->lengths(), heads_, stream);
  } else {
    const std::int64_t row = texts.begun / together, rows = kept.keys_values.size(0);
    if (row >= rows)
      throw ShapeMismatch(concat(name_, ": text ", texts.begun, " reads row ", row,
                                 " of the encoder's output, which has ", rows, " rows"));
    const auto of_text = [&](const Tensor& all) { return all ? all.rows(row, row + 1) : all; };
    kernels::cross_attention_forward(y, Tensor{}, q, of_text(kept.keys_values),
                                     of_text(source_->lengths()), heads_, stream);
  }
  return projection_.product(y, residual, pass, stream);
}

std::unique_ptr<BranchState> CrossAttention::make_state(DecodeCapacity, DType,
                                                        const Stream&) const {
  return std::make_unique<SourceState>();
}

TokenFlops CrossAttention::flops(std::int64_t time) const {
  const double keys =
      source_length_ > 0 ? static_cast<double>(source_length_) : static_cast<double>(time);
  const double share = keys / static_cast<double>(time), products = 4 * keys * inner();
  const TokenFlops source = source_keys_.flops();
  const double unwanted =
      source_->requires_gradient() ? 0 : 2 * static_cast<double>(source_keys_.weight().elements());
  return TwoProductBranch::flops(time) +
         TokenFlops{.forward = products + share * source.forward,
                    .backward = 2 * products + share * (source.backward - unwanted),
                    .attended = share * source.forward};
}

/// Counts the source's keys and values only below Rebuild::kAttended: they are most of a text's
/// state, and recomputing them costs one product.
KeptNumbers CrossAttention::kept() const {
  const double always = 2 * inner(), all = always + source_share() * key_numbers();
  return {all, all, all, always};
}

}  // namespace hybrid_trainer
