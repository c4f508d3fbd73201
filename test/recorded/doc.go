// Package recorded records what the agent answers, writes and saves. A change that must not alter behaviour is compared
// with the recording: a golden file has a hash per play, and the texts themselves are written on request.
//
// TestRecorded of this package plays the scenarios of test/scenarios; TestRecorded of internal/conductor plays random
// histories of its model. Both compare with testdata/*.sha256 beside them; -update writes those files. With
// TRIMTAB_RECORD=dir the texts are written below dir, so that two trees can be compared with diff -r.
//
// A play must be deterministic. It runs in memory and in a bubble of testing/synctest, where time advances only when
// every goroutine waits. Messages between agent and runtime are delayed, so that earlier work is finished when they
// arrive. Times, durations and the ids of log lines are removed. Log lines are not recorded: their wording may change.
// A play runs until no work is left, so the end of a scenario may differ from its wants.
//
// TestAdopted starts an agent on the state of an earlier one: state directory, kernel and the runtime's list, which are
// in testdata/left. -leave writes them again.
package recorded
