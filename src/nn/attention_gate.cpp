#include "hybrid_trainer/nn/attention_gate.h"

#include "hybrid_trainer/kernels/columns.h"

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

}  // namespace hybrid_trainer
