// Package packing measures how well owners of CPUs are packed on a used machine. It plays random histories, in which
// pods are created, resized and removed, under policy pools, and compares each placement with every possible one at
// that moment. The rules of the kubelet's static CPU manager and of Katalyst play the same histories. No time is
// measured. See docs/benchmarks-placement.md.
package packing
