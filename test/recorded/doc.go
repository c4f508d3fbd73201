// Package recorded records what the agent answers, writes and saves while it runs a scenario. The recordings show
// whether a change of the code alters the agent's behaviour. A golden file has only the hash of each recording.
//
// TestRecorded of this package runs the scenarios in test/scenarios. TestRecorded of internal/conductor runs random
// sequences of events. Both tests compare the hashes with *.sha256 files in their own testdata directories. The flag
// -update writes these files. With TRIMTAB_RECORD=dir, the tests also write the recordings below dir, so that diff -r
// can compare the recordings of two source trees.
//
// A recording must be deterministic. Each run is in memory and in a bubble of testing/synctest, where time advances
// only when every goroutine waits. Messages between agent and runtime are delayed, so that the agent and the runtime
// finish earlier work before a message arrives. Recordings contain no times, durations and operation ids. They contain
// no log lines, because the words of log lines may change. A run continues until no work is left, so the state at its
// end may differ from the wanted state of the scenario.
//
// TestAdopted starts an agent with the state that an earlier agent has left: the state directory, the kernel's files
// and the runtime's list of containers. This state is in testdata/left. The flag -leave writes these files again.
package recorded
