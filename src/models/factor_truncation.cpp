#include "src/models/factor_truncation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hybrid_trainer {

namespace {

using Column = std::vector<double>;

double product(const Column& x, const Column& y) {
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

void turn(Column& x, Column& y, double c, double s) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double before = x[i];
    x[i] = c * before - s * y[i];
    y[i] = s * before + c * y[i];
  }
}

struct FactorColumns {
  std::vector<Column> u, v;
  void orthonormalize();
  void diagonalize();
  void keep(std::size_t rank);
};

/// Factors V = Q·R by Gram-Schmidt, twice. V becomes Q and U becomes U·Rᵀ, which keeps U·Vᵀ.
void FactorColumns::orthonormalize() {
  for (std::size_t k = 0; k < v.size(); ++k) {
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t j = 0; j < k; ++j) {
        const double along = product(v[j], v[k]);
        for (std::size_t i = 0; i < v[k].size(); ++i) {
          v[k][i] -= along * v[j][i];
          u[j][i] += along * u[k][i];
        }
      }
    }
    const double size = std::sqrt(product(v[k], v[k]));
    for (double& x : v[k]) x = size > 0 ? x / size : 0;
    for (double& x : u[k]) x *= size;
  }
}

/// Rotates column pairs until U's columns are orthogonal like V's. Source: Hestenes 1958.
void FactorColumns::diagonalize() {
  constexpr int kMaxSweeps = 60;
  bool turned = true;
  for (int sweep = 0; turned && sweep < kMaxSweeps; ++sweep) {
    turned = false;
    for (std::size_t p = 0; p < u.size(); ++p) {
      for (std::size_t q = p + 1; q < u.size(); ++q) {
        const double first = product(u[p], u[p]), second = product(u[q], u[q]),
                     both = product(u[p], u[q]);
        if (std::abs(both) <= 1e-13 * std::sqrt(first * second)) continue;
        const double ratio = (second - first) / (2 * both);
        const double tangent = std::copysign(1 / (std::abs(ratio) + std::hypot(1, ratio)), ratio);
        const double cosine = 1 / std::hypot(1, tangent);
        turn(u[p], u[q], cosine, cosine * tangent);
        turn(v[p], v[q], cosine, cosine * tangent);
        turned = true;
      }
    }
  }
}

/// Sorts the columns, splits singular values between both factors, and clears the rest.
void FactorColumns::keep(std::size_t rank) {
  std::vector<std::size_t> order(u.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::size_t k) { return product(u[k], u[k]); });
  FactorColumns sorted{std::vector(u.size(), Column(u[0].size())),
                       std::vector(u.size(), Column(u[0].size()))};
  for (std::size_t k = 0; k < rank; ++k) {
    const std::size_t from = order[k];
    const double root = std::pow(product(u[from], u[from]), 0.25);
    for (std::size_t i = 0; root > 0 && i < u[from].size(); ++i) {
      sorted.u[k][i] = u[from][i] / root;
      sorted.v[k][i] = v[from][i] * root;
    }
  }
  *this = std::move(sorted);
}

/// Truncates each head's factors. `table`: (positions, 2·heads·columns) f32 host, V before U.
void truncate_table(const Tensor& table, std::int64_t heads, std::int64_t rank) {
  const std::int64_t positions = table.size(0), columns = table.size(1) / (2 * heads);
  auto* const numbers = table.data<float>();
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto visit = [&](FactorColumns& factors, const auto& one) {
      for (std::int64_t k = 0; k < columns; ++k) {
        for (std::int64_t i = 0; i < positions; ++i) {
          float* const row = numbers + i * table.size(1) + head * columns + k;
          const auto at = static_cast<std::size_t>(i);
          one(factors.v[static_cast<std::size_t>(k)][at], row[0]);
          one(factors.u[static_cast<std::size_t>(k)][at], row[heads * columns]);
        }
      }
    };
    const std::vector empty(static_cast<std::size_t>(columns),
                            Column(static_cast<std::size_t>(positions)));
    FactorColumns factors{empty, empty};
    visit(factors, [](double& column, float& number) { column = double{number}; });
    factors.orthonormalize();
    factors.diagonalize();
    factors.keep(static_cast<std::size_t>(rank));
    visit(factors, [](double& column, float& number) { number = static_cast<float>(column); });
  }
}

}  // namespace

void truncate_factors(LanguageModel& model, std::int64_t rank, const Stream& stream) {
  const ModelConfig& config = model.config();
  std::vector<Parameter*> tables;
  model.visit_parameters([&](Parameter& parameter) {
    if (parameter.name().ends_with(".factors.weight")) tables.push_back(&parameter);
  });
  if (tables.empty())
    throw ConfigError(
        {concat("factor rank: got ", rank,
                ", but the model has no layers p (T + U·Vᵀ by position) with tables to truncate")});
  if (rank < 1 || rank > config.semiseparable.rank)
    throw ConfigError({concat("factor rank: got ", rank, ", want 1 to model.semiseparable.rank ",
                              config.semiseparable.rank)});
  for (Parameter* const table : tables) {
    const Tensor master = table->master_in_place(), on_host = wait_for_host(master, stream);
    truncate_table(on_host, config.heads, rank);
    if (master.device().type != DeviceType::kCpu) wait_for_copy(master, on_host, stream);
  }
}

}  // namespace hybrid_trainer
