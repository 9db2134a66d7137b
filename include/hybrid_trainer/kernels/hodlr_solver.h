#pragma once

#include <memory>
#include <span>

#include "hybrid_trainer/kernels/hodlr.h"

namespace hybrid_trainer::kernels {

/// Solves with a Hodlr, which it factors once: O(N·r²·log² N), and as much memory again.
class HodlrSolver {
 public:
  explicit HodlrSolver(const Hodlr& matrix);
  ~HodlrSolver();
  /// Each vector of N in x becomes A⁻¹·it. Not finite where A is singular. Throws ShapeMismatch.
  void solve(std::span<double> x) const;

 private:
  struct Factors;
  std::unique_ptr<Factors> factors_;
};

}  // namespace hybrid_trainer::kernels
