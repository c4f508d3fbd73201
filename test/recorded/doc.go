// Package recorded keeps what the agent answers, writes and saves, so that a change that is to change nothing can be
// held against it: a hash per play in a golden file, and the texts themselves on request.
//
// TestRecorded of this package plays the scenarios of test/scenarios; TestRecorded of internal/conductor plays random
// histories of its model. Both compare with testdata/*.sha256 beside them; -update writes those files. With
// TRIMTAB_RECORD=dir the texts are written below dir, so that two trees can be compared with diff -r.
//
// A play has to have one outcome. All of it happens in memory and in a bubble of testing/synctest, where time passes
// only when nothing else is left to do. A message between agent and runtime takes a moment, so that whatever was under
// way is done when it comes. Times, durations and the ids of log lines are taken out. Log lines are not recorded: their
// wording is free. A play goes on until nothing is left to be done, so a scenario may end otherwise than it wants.
//
// TestAdopted has an agent start on what an earlier one left: state directories, the kernel and the runtime's list, which
// are in testdata/left. -update leaves them again.
package recorded
