// Package packing measures how well a placement policy packs containers that own CPUs on a machine that is in use. It
// makes random histories, in which pods are created, resized and removed, and lets the placement policy named pools
// place the pods. It compares each placement with all placements that were possible at that moment. For comparison, it
// also plays the same histories with the rules of the kubelet's static CPU manager and of Katalyst. It measures no
// times. See docs/benchmarks-placement.md.
package packing
