#pragma once

#include "hybrid_trainer/nn/network.h"
#include "src/data/examples/packed_rows.h"
#include "src/run/language_data.h"
#include "src/run/run_ranks.h"

namespace hybrid_trainer {

/// What tells the reference of some pairs by some model from another one.
struct ReferenceKey {
  std::string rows;  // checksum
  std::string base;  // identity_of_start and the precision; empty if it is not known any more
  std::size_t pairs = 0;
};

/// Where a run keeps its reference.
inline std::string reference_file(const RunPaths& run) { return run.root + "/reference.bin"; }

/// Identifies the weights that a run begins with; `adapter` may be empty.
std::string identity_of_start(const ModelFolder& base, const std::filesystem::path& adapter);
/// That of a run's rows, those that it trains on and those that it is measured on, in this order.
ReferenceKey reference_key(const ExampleData& data, std::string base);

/// Writes the reference of a run's pairs into `file`. Throws IoError.
void write_reference(const std::string& file, const ReferenceKey& key,
                     const PairReferences& references);
/// Reads them; none where there is no such file, or it is of other pairs or another base. Throws
/// DataError where it is damaged.
std::optional<PairReferences> read_reference(const std::string& file, const ReferenceKey& key);

/// Log-likelihoods of the answers of all rows, by forward passes in `dtype`, whose memory is that of an
/// evaluation. Of several ranks each computes some; a collective then. Throws OutOfMemory.
PairReferences compute_reference(LossModel& model, const PackedRows& rows,
                                 std::int64_t sequences_at_once, DType dtype, const RunRanks& ranks,
                                 const Stream& stream);

}  // namespace hybrid_trainer
