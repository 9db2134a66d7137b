
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "src/nn/graph/modules.h"
#include "src/nn/graph/plan.h"

namespace hybrid_trainer::graph {

namespace {

/// Returns the batch's tensor, which `reader` reads, after checking it.
const Tensor& checked(const BatchTensor& wanted, const Batch& batch, const std::string& reader) {
  const Tensor& tensor = batch.at(wanted.name);
  const Shape shape = with_examples(wanted.shape, batch.size());
  if (tensor.shape() == shape && tensor.dtype() == wanted.dtype) return tensor;
  throw ShapeMismatch(concat("network: ", wanted.name, " is ", tensor.shape().text(), " ",
                             name_of(tensor.dtype()), " in the batch; ", reader,
                             ", which reads it, wants ", shape.text(), " ", name_of(wanted.dtype)));
}

/// Returns the divisor of the sum of a loss's rows.
double divisor_of(const Loss& loss, const Batch& batch) {
  return loss.counts_targets() ? batch.loss_divisor()
                               : static_cast<double>(loss.rows() * batch.size());
}

}  // namespace

std::vector<Tensor> targets_of(const Entry& entry, const Batch& batch) {
  std::vector<Tensor> targets;
  for (const BatchTensor& target : entry.loss->targets())
    targets.push_back(checked(target, batch, entry.name.here));
  return targets;
}

Run::Run(const Plan& plan, const Batch& batch, ActivationTape& tape, const Stream& stream)
    : plan_(plan),
      batch_(batch),
      tape_(tape),
      stream_(stream),
      pass_(tape.pass()),
      trained_(plan.trained()),
      shares_(plan.recomputed(pass_.recompute)) {}

Run::~Run() { tape_.set_pass(pass_); }

/// Returns the pass for a part, such that its dropout is the same as in the whole batch.
Pass Run::pass_of(std::size_t place) const {
  const Entry& entry = plan_.entries()[place];
  Pass pass = pass_;
  pass.dtype = dtype_of(place);
  if (entry.dtype) pass.products = nullptr;
  pass.positions = {};
  pass.recompute = entry.part->recomputes_itself() ? shares_[place] : 0;
  const Shape& shape = plan_.entries()[entry.reads.front()].shape;
  const std::int64_t rows = shape.elements() / shape[shape.rank() - 1];
  pass.first_token = pass_.first_token / batch_.tokens_per_example() * rows;
  return pass;
}

Tensor Run::in(DType dtype, const Tensor& x) const {
  if (!x || x.dtype() == dtype || x.dtype() == DType::kI32) return x;
  Tensor cast = Tensor::empty(x.shape(), dtype, MemoryKind::kActivations, stream_);
  kernels::cast(cast, x, stream_);
  return cast;
}

std::vector<PartInput> Run::inputs_of_batch(std::size_t place) const {
  const Entry& entry = plan_.entries()[place];
  std::vector<PartInput> inputs;
  for (const std::size_t read : entry.reads) {
    const Entry& source = plan_.entries()[read];
    inputs.push_back({source.tensor ? checked(*source.tensor, batch_, entry.name.here) : Tensor{},
                      tape_.keeps() && trained_[read]});
  }
  return inputs;
}

void ForwardRun::compute_part(std::size_t place) {
  const Entry& entry = plan_.entries()[place];
  const MemoryLabel label(entry.name.here);
  std::vector<PartInput> inputs = inputs_of_batch(place);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& result = results_[entry.reads[i]];
    inputs[i].tensor = in(dtype_of(place), result ? result : inputs[i].tensor);
  }
  if (propagates(place) && !is_checkpointed(place)) {
    tape_.set_pass(pass_of(place));
    results_[place] = entry.part->forward(inputs, tape_, stream_);
  } else {
    ForwardOnlyTape none(pass_of(place));
    results_[place] = entry.part->forward(inputs, none, stream_);
    if (propagates(place)) {
      for (const std::size_t read : entry.reads)
        if (results_[read]) tape_.save({ActivationRole::kBlockInput, results_[read]}, stream_);
    }
  }
  release(entry);
}

Tensor ForwardRun::compute_loss(std::size_t place, const Tensor& losses, float gradient_scale) {
  const Entry& entry = plan_.entries()[place];
  const MemoryLabel label(entry.name.here);
  const Tensor result = results_[entry.reads.front()];
  const auto factor = static_cast<float>(entry.weight / divisor_of(*entry.loss, batch_));
  const bool writes = propagates(place) && gradient_scale != 0;
  Tensor x = in(DType::kF32, result);
  if (writes && x.raw() == result.raw()) {  // the loss overwrites x; other parts may read it
    x = Tensor::empty_like(result, MemoryKind::kLogits, stream_);
    copy(x, result, stream_);
  }
  entry.loss->compute(losses, x, targets_of(entry, batch_),
                      {writes ? gradient_scale * factor : 0, pass_.label_smoothing}, stream_);
  if (writes) tape_.save({ActivationRole::kLossGradient, x}, stream_);
  release(entry);
  return x;
}

Tensor ForwardRun::loss(float gradient_scale) {
  std::int64_t all = 0;
  for (const Entry& entry : plan_.entries()) {
    readers_.push_back(entry.readers);
    if (entry.loss) all += entry.loss->rows() * batch_.size();
  }
  const Tensor losses = Tensor::empty({all}, DType::kF32, MemoryKind::kWorkspace, stream_);
  std::int64_t at = 0;
  for (std::size_t i = 0; i < plan_.entries().size(); ++i) {
    const Entry& entry = plan_.entries()[i];
    if (entry.part) compute_part(i);
    if (!entry.loss) continue;
    const std::int64_t rows = entry.loss->rows() * batch_.size();
    const Tensor own = losses.rows(at, at + rows);
    compute_loss(i, own, gradient_scale);
    kernels::scale(own, own, static_cast<float>(entry.weight / divisor_of(*entry.loss, batch_)),
                   stream_);
    at += rows;
  }
  const Tensor sum = kernels::empty_result(stream_);
  kernels::quotient(sum, losses, 1, stream_);
  return sum;
}

void ForwardRun::visit_losses(const LossVisitor& visit) {
  for (const Entry& entry : plan_.entries()) readers_.push_back(entry.readers);
  for (std::size_t i = 0; i < plan_.entries().size(); ++i) {
    const Entry& entry = plan_.entries()[i];
    if (entry.part) compute_part(i);
    if (!entry.loss) continue;
    const Tensor losses = Tensor::empty({entry.loss->rows() * batch_.size()}, DType::kF32,
                                        MemoryKind::kWorkspace, stream_);
    const Tensor x = compute_loss(i, losses, 0);
    visit(entry, x, losses);
  }
}

Tensor ForwardRun::result(std::size_t part) {
  const std::vector<bool> leads = plan_.leading_to(part);
  readers_.assign(plan_.entries().size(), 0);
  for (std::size_t i = 0; i < leads.size(); ++i)
    if (leads[i])
      for (const std::size_t read : plan_.entries()[i].reads) ++readers_[read];
  for (std::size_t i = 0; i <= part; ++i)
    if (leads[i] && plan_.entries()[i].part) compute_part(i);
  return results_[part];
}

void BackwardRun::add(std::size_t place, const Tensor& gradient) {
  Tensor& sum = gradients_[place];
  const Tensor own = in(dtype_of(place), gradient);
  if (!sum) {
    sum = own;
  } else {
    kernels::add(sum, sum, own, stream_);
  }
}

std::vector<Tensor> BackwardRun::part_gradients(std::size_t place, const Tensor& dy) {
  const Entry& entry = plan_.entries()[place];
  std::vector<PartInput> inputs = inputs_of_batch(place);
  if (!is_checkpointed(place)) {
    tape_.set_pass(pass_of(place));
    return entry.part->backward(dy, inputs, tape_, stream_);
  }
  std::vector<PartInput> again = inputs;
  for (std::size_t i = again.size(); i-- > 0;) {
    if (!again[i].tensor) again[i].tensor = tape_.take(stream_);
    again[i].tensor = in(dtype_of(place), again[i].tensor);
  }
  PlainTape inner(pass_of(place), Rebuild::kNormalized);
  entry.part->forward(again, inner, stream_);
  again.clear();
  return entry.part->backward(dy, inputs, inner, stream_);
}

void BackwardRun::run() {
  for (std::size_t i = plan_.entries().size(); i-- > 0;) {
    const Entry& entry = plan_.entries()[i];
    if (!propagates(i)) continue;
    const MemoryLabel label(entry.name.here);
    if (entry.loss) {
      add(entry.reads.front(), tape_.take(stream_));
      continue;
    }
    const Tensor dy = std::exchange(gradients_[i], {});
    const std::vector<Tensor> gradients = part_gradients(i, dy);
    for (std::size_t k = 0; k < gradients.size(); ++k)
      if (trained_[entry.reads[k]]) add(entry.reads[k], gradients[k]);
  }
}

}  // namespace hybrid_trainer::graph
