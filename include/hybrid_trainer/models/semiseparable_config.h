#pragma once

#include <cstdint>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// The sizes of the mixers T + U·Vᵀ and BK core.
struct SemiseparableConfig {
  std::int64_t rank = 8;
  std::int64_t potentials = 8;
  double imaginary = 1;
  double limit = 3;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"rank", self.rank,
                "Columns of U and V of each head's matrix T + U·Vᵀ; at most the context.",
                Range::between(1, 1024)});
    visit(Field{"potentials", self.potentials,
                "Matrices T of a BK core: each token gives each of them one number and gets two.",
                Range::between(1, 4096)});
    visit(Field{"imaginary", self.imaginary,
                "Imaginary part of z in (T − z·I)⁻¹ of a BK core: the smaller, the further a token "
                "reaches; with 0 the matrix may be singular.",
                Range::between(1e-6, 1e6)});
    visit(Field{"limit", self.limit, "A BK core's potentials are cut to [−limit, limit].",
                Range::above(0)});
  }
};

}  // namespace hybrid_trainer
