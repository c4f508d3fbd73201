// Package packing counts how well owners of CPUs are packed on a used machine:
// policy pools plays random histories of pods that come, grow and go, and each
// placement is compared with every fit there was at that moment. The rules of the
// kubelet's static CPU manager and of Katalyst play the same histories. No time is
// measured. See docs/benchmarks.md.
package packing
