#include "kernels/cuda/sums_apart.h"

#include <utility>

namespace hybrid_trainer::kernels::cuda {

decltype(kernels::bias_backward) bias_backward;

namespace {

/// Its bits in the file of measured algorithms, which are none of cuBLASLt's.
constexpr AlgorithmBits kApart{~std::uint64_t{0}, ~std::uint64_t{0}};

}  // namespace

Product without_sums(const Product& product) {
  Product plain = product;
  plain.bias = {};
  plain.epilogue = Epilogue::kNone;
  return plain;
}

AlgorithmOffer with_sums_apart(const Product& product, AlgorithmOffer offer, bool& apart,
                               const std::function<void(const Product&, const Stream&)>& multiply) {
  apart = false;
  if (product.epilogue != Epilogue::kRowSums) return offer;
  const auto candidates = [all = std::move(offer.candidates)] {
    std::vector<AlgorithmBits> found = all();
    if (!found.empty()) found.push_back(kApart);
    return found;
  };
  const auto take = [&apart, inner = std::move(offer.take)](const AlgorithmBits& bits) {
    apart = bits == kApart;
    return apart || inner(bits);
  };
  const auto run = [&apart, multiply, inner = std::move(offer.run)](const Product& trial,
                                                                    const Stream& stream) {
    if (!apart) return inner(trial, stream);
    multiply(without_sums(trial), stream);
    cuda::bias_backward(trial.bias, trial.a, GradientMode::kOverwrite, stream);
  };
  return {candidates, take, run};
}

}  // namespace hybrid_trainer::kernels::cuda
