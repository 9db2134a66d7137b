#pragma once

#include "hybrid_trainer/nn/network.h"
#include "src/data/examples/packed_rows.h"
#include "src/run/language_data.h"
#include "src/run/run_ranks.h"

namespace hybrid_trainer {

/// Identifies the pairs of a reference file and the model that computed the file.
struct ReferenceKey {
  std::string rows;  // checksum of the rows of pairs
  std::string base;  // identity_of_start and the precision; empty if unknown
  std::size_t pairs = 0;
};

/// Returns the path of a run's reference file: the log-likelihoods of its pairs before training.
inline std::string reference_file(const RunPaths& run) { return run.root + "/reference.bin"; }

/// Returns a text that identifies the initial weights of a run. `adapter` may be empty.
std::string identity_of_start(const ModelFolder& base, const std::filesystem::path& adapter);
/// Returns the key of the reference for a run's rows: training rows first, then validation rows.
ReferenceKey reference_key(const ExampleData& data, std::string base);

/// Writes the reference log-likelihoods of a run's pairs to `file`. Throws IoError.
void write_reference(const std::string& file, const ReferenceKey& key,
                     const PairReferences& references);
/// Returns nullopt if there is no file with this key. Throws DataError if the file is damaged.
std::optional<PairReferences> read_reference(const std::string& file, const ReferenceKey& key);

/// Computes the log-likelihoods of the answers of all rows by forward passes in `dtype`, with the
/// memory of an evaluation. Collective: ranks share the work. Throws OutOfMemory.
PairReferences compute_reference(LossModel& model, const PackedRows& rows,
                                 std::int64_t sequences_at_once, DType dtype, const RunRanks& ranks,
                                 const Stream& stream);

}  // namespace hybrid_trainer
