#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace hybrid_trainer {

/// Order of a matrix's rows in a file where that is another one: there group by group, each of which
/// has some rows of every part; here part by part.
struct RowGroups {
  std::int64_t groups = 1;
  std::vector<std::int64_t> rows{};  // of each part in one group; none: one order here and there

  bool are_alike() const { return groups == 1 || rows.size() < 2; }
  std::int64_t rows_of_group() const {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  }
  /// Calls visit(row here, row there, count) for rows that lie together in both orders.
  template <class Visit>
  void for_each_run(const Visit& visit) const {
    std::int64_t here = 0, of_group = 0;
    for (const std::int64_t count : rows) {
      for (std::int64_t group = 0; group < groups; ++group, here += count)
        visit(here, group * rows_of_group() + of_group, count);
      of_group += count;
    }
  }
};

}  // namespace hybrid_trainer
