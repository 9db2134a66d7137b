#include "kernels/cuda/product_kind.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer::kernels::cuda {
namespace {

int alignment_of(const Tensor& tensor) {
  constexpr std::uintptr_t kMost = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.raw()) | kMost;
  return static_cast<int>(address & (~address + 1));
}

}  // namespace

ProductKind::ProductKind(const Product& product)
    : m(product.m()),
      n(product.n()),
      k(product.k()),
      transpose_a(product.transpose_a),
      transpose_b(product.transpose_b),
      inputs(product.a.dtype()),
      output(product.c.dtype()),
      adds(product.addend.defined()),
      has_bias(product.bias.defined()),
      has_aux(product.aux.defined()),
      epilogue(product.epilogue),
      alignments{alignment_of(product.a),    alignment_of(product.b),
                 alignment_of(product.c),    alignment_of(product.addend),
                 alignment_of(product.bias), alignment_of(product.aux)} {}

std::string ProductKind::text() const {
  std::string all =
      concat(m, " ", n, " ", k, transpose_a == Transpose::kYes ? " t" : " n",
             transpose_b == Transpose::kYes ? "t " : "n ", name_of(inputs), " ", name_of(output),
             adds ? " adds" : "", has_bias ? " bias" : "", has_aux ? " aux" : "", " epilogue ",
             static_cast<int>(epilogue), " aligned");
  for (const int alignment : alignments) all += concat(" ", alignment);
  return all;
}

}  // namespace hybrid_trainer::kernels::cuda
