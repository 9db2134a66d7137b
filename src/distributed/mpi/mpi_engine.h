#pragma once

namespace hybrid_trainer {

/// What the plug-in libhybrid_trainer_mpi gives the program, which is not linked with MPI: messages
/// of bytes between ranks, and how they begin and end. All calls come from one thread. Those that
/// return an int give 0, or an error that error_text tells.
struct MpiEngine {
  static constexpr int kVersion = 1;
  int version;
  int (*start)(int* rank, int* size);
  /// Host of this process.
  int (*host_name)(char* name, int bytes);
  /// `request` is what is_done wants.
  int (*begin_send)(const void* data, int bytes, int peer, void** request);
  int (*begin_receive)(void* data, int bytes, int peer, void** request);
  int (*is_done)(void** request, int* done);
  void (*error_text)(int error, char* text, int bytes);
  /// Waits for all ranks.
  int (*finish)();
  void (*abort)(int exit_code);
};

/// The plug-in's one function, of C linkage.
using MpiEngineFunction = const MpiEngine*();
inline constexpr const char* kMpiEngineFunction = "hybrid_trainer_mpi_engine";

}  // namespace hybrid_trainer
