#pragma once

#include "kernels/cuda/algorithm_choice.h"

namespace hybrid_trainer::kernels::cuda {

/// The product without Epilogue::kRowSums.
Product without_sums(const Product& product);

/// Adds to the algorithms of a product with Epilogue::kRowSums, if it has any, one more: the product
/// without sums, by `multiply`, and then the sums by a kernel of their own. `apart` says whether that
/// was taken last, and outlives the offer. Other products' offers stay as they are.
AlgorithmOffer with_sums_apart(const Product& product, AlgorithmOffer offer, bool& apart,
                               const std::function<void(const Product&, const Stream&)>& multiply);

}  // namespace hybrid_trainer::kernels::cuda
