#include "src/models/factor_truncation.h"

#include <gtest/gtest.h>

#include <Eigen/SVD>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"
#include "tests/support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kRows = 12, kHeadsOfTable = 2, kColumns = 5;

class FactorTruncation : public ::testing::Test {
 protected:
  std::unique_ptr<LanguageModel> drawn(const char* mixers = "p") {
    auto model = make_model({.family = "semiseparable",
                             .layers = 1,
                             .heads = kHeadsOfTable,
                             .width = 8,
                             .context = kRows,
                             .vocabulary = 20,
                             .mixers = mixers,
                             .semiseparable = {.rank = kColumns}},
                            1, stream_);
    randomize([&](const ParameterVisitor& visit) { model->visit_parameters(visit); }, stream_);
    return model;
  }
  /// U·Vᵀ of a head, (kRows, kRows).
  static Eigen::MatrixXd matrix_of(LanguageModel& model, std::int64_t head) {
    Eigen::MatrixXd u(kRows, kColumns), v(kRows, kColumns);
    model.visit_parameters([&](Parameter& parameter) {
      if (!parameter.name().ends_with("factors.weight")) return;
      const std::vector<double> numbers = values_of(master_of(parameter));
      const auto at = [&](std::int64_t i, std::int64_t column) {
        return numbers[static_cast<std::size_t>(i * 2 * kHeadsOfTable * kColumns + column)];
      };
      for (std::int64_t i = 0; i < kRows; ++i) {
        for (std::int64_t k = 0; k < kColumns; ++k) {
          v(i, k) = at(i, head * kColumns + k);
          u(i, k) = at(i, (kHeadsOfTable + head) * kColumns + k);
        }
      }
    });
    return u * v.transpose();
  }
  const Stream stream_ = test_stream();
};

/// Truncation error must equal the error of the truncated SVD, the smallest possible for the rank.
TEST_F(FactorTruncation, MatchesTruncatedSvdForEachRank) {
  for (std::int64_t rank = 1; rank <= kColumns; ++rank) {
    const auto model = drawn();
    std::vector<Eigen::MatrixXd> before;
    for (std::int64_t head = 0; head < kHeadsOfTable; ++head)
      before.push_back(matrix_of(*model, head));
    truncate_factors(*model, rank, stream_);
    for (std::int64_t head = 0; head < kHeadsOfTable; ++head) {
      const Eigen::MatrixXd& whole = before[static_cast<std::size_t>(head)];
      const Eigen::MatrixXd left = matrix_of(*model, head);
      const Eigen::VectorXd sizes = Eigen::JacobiSVD<Eigen::MatrixXd>(whole).singularValues();
      EXPECT_NEAR((whole - left).norm(), sizes.tail(kRows - rank).norm(), 1e-6 * sizes[0])
          << "rank " << rank << ", head " << head;
      const Eigen::VectorXd kept = Eigen::JacobiSVD<Eigen::MatrixXd>(left).singularValues();
      EXPECT_LT(kept.tail(kRows - rank).norm(), 1e-6 * sizes[0]);
    }
  }
}

TEST_F(FactorTruncation, RejectsInvalidRank) {
  const auto model = drawn(), without = drawn("t");
  EXPECT_THROW(truncate_factors(*model, 0, stream_), ConfigError);
  EXPECT_THROW(truncate_factors(*model, kColumns + 1, stream_), ConfigError);
  EXPECT_THROW(truncate_factors(*without, 1, stream_), ConfigError);
}

}  // namespace
}  // namespace hybrid_trainer::testing
