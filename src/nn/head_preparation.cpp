#include "hybrid_trainer/nn/head_preparation.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

HeadPreparation::HeadPreparation(const ModuleName& name, const Spec& spec, const Stream& stream)
    : turned_heads_(spec.heads.queries + spec.heads.keys),
      head_size_(spec.head_size),
      limit_(spec.limit),
      rotary_(spec.rotary) {
  if (spec.norm)
    norms_.emplace(name, spec.heads, head_size_, *spec.norm, spec.norms_all_heads, stream);
}

/// Queries and keys, by their positions.
void HeadPreparation::rotate(const Tensor& qkv, const RotaryTable::Angles& angles, const Pass& pass,
                             kernels::Rotation rotation, const Stream& stream) const {
  if (!angles.table) return;
  const Tensor rows = angles.by_token ? qkv.view({1, qkv.size(0) * qkv.size(1), qkv.size(2)}) : qkv;
  kernels::rotate(rows, {static_cast<int>(turned_heads_), head_size_}, angles.table, 0,
                  angles.by_token ? Tensor{} : pass.positions, rotation, stream);
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

void HeadPreparation::visit_parameters(const ParameterVisitor& visit) {
  if (norms_) norms_->visit_parameters(visit);
}

}  // namespace hybrid_trainer
