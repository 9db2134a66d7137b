#pragma once

#include <cstdint>

namespace hybrid_trainer::kernels::cpu {

/// Words that lie together: `count` from `offset` on. A word is a float, or a pair of bf16.
struct WordRun {
  std::int64_t offset, count;
  std::int64_t first;  // of the product's k
};

/// A tile of a product: sums[r, j] = start[j] + Σ_k a(r, k)·b[k, j], k over all runs, j over whole
/// vectors. Of a run, a(r, k) is word offset + r·step + k of a (rows: each its own window),
/// or word offset + k·step + r (places: all from one place, which moves).
struct WindowTile {
  const float* a = nullptr;
  std::int64_t step = 0;
  const WordRun* runs = nullptr;
  std::int64_t run_count = 0;
  const float* b = nullptr;  // k's vectors begin at word k·b_step
  std::int64_t b_step = 0;
  const float* start = nullptr;  // null: zeros
  float* sums = nullptr;         // rows one after the other
  bool adds = false;             // to sums
};

enum class TileSteps { kRows, kPlaces };

/// The tiles of this machine's vectors. A pair of words adds both of its products.
class WindowTiles {
 public:
  /// `pairs`: words are pairs of bf16, which this processor must multiply.
  WindowTiles(bool pairs, TileSteps steps);
  static constexpr std::int64_t kMostVectors = 2;
  std::int64_t lanes() const { return lanes_; }  // floats of a vector
  std::int64_t width() const { return kMostVectors * lanes_; }
  std::int64_t most_rows() const { return most_rows_; }
  /// rows: at most most_rows(); vectors: 1 or 2.
  void sum(std::int64_t rows, std::int64_t vectors, const WindowTile& tile) const {
    functions_[(rows - 1) * kMostVectors + vectors - 1](tile);
  }
  using Function = void (*)(const WindowTile&);

 private:
  std::int64_t lanes_, most_rows_;
  const Function* functions_;
};

/// Whether convolutions of bf16 multiply pairs; elsewhere they convert to f32.
bool multiplies_pairs();

}  // namespace hybrid_trainer::kernels::cpu
